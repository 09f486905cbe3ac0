// Curves of several runs over the steps, drawn by uPlot, which app.js loads as a script.

import { html, useEffect, useRef, useState } from "view/lib.js";
import { number, percent } from "view/format.js";
import { theme } from "view/theme.js";

const HEIGHT = 190;
// Of the lines of a panel: solid, dotted, dashed, with dashes of two lengths.
const DASHES = [undefined, [3, 3], [8, 4], [8, 3, 2, 3]];

export const RUN_COLORS = 8;
export const runColor = (index) => `var(--run-${index % RUN_COLORS})`;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function movingMean(values, window) {
  let sum = 0;
  return values.map((value, index) => {
    sum += value;
    if (index >= window) sum -= values[index - window];
    return sum / Math.min(index + 1, window);
  });
}

function aligned(lines, smoothing) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const column = (line, values) => {
    const result = new Array(steps.length).fill(null);
    line.steps.forEach((step, index) => (result[place.get(step)] = values[index]));
    return result;
  };
  const smooth = lines.map((line) => column(line, smoothing(line) > 1 ? movingMean(line.values, smoothing(line)) : line.values));
  return { steps, smooth, raw: lines.map((line) => column(line, line.values)) };
}

// Each value with the sum of those above it in the list.
export const stacked = (columns) => columns.map((_, position) => columns[0].map((_, index) => columns.slice(0, position + 1).reduce((sum, column) => sum + (column[index] ?? 0), 0)));

// Whether a curve is read against its value before training.
const hasBase = (line) => line.evaluated && line.line === 0 && line.steps[0] === 0 && line.steps.length > 1;

function drawIntervals(plot, lines, colors) {
  const context = plot.ctx;
  lines.forEach((line, position) => {
    context.strokeStyle = colors[position];
    context.beginPath();
    (line.intervals ?? []).forEach(([low, high], index) => {
      const x = plot.valToPos(line.steps[index], "x", true);
      context.moveTo(x, plot.valToPos(low, "y", true));
      context.lineTo(x, plot.valToPos(high, "y", true));
    });
    context.stroke();
  });
}

// `runs` are all labels, in the order of their colors; of a single run, the lines have colors. `onStep` is called with
// (run, step) for a chosen point.
export function Chart({ figure, runs, smoothing, onStep }) {
  const target = useRef(null);
  const [cursor, setCursor] = useState(null);
  const isPercent = figure.scale === "percent";
  const isLogarithmic = figure.scale === "logarithmic"; // values are positive, or left out
  const isStacked = figure.scale === "stacked" && runs.length === 1;
  const isSmoothed = (line) => !line.evaluated && !isLogarithmic && !isStacked && smoothing > 1;
  const colorOf = (line) => (runs.length > 1 ? runs.indexOf(line.run) : line.line) % RUN_COLORS;
  const data = aligned(figure.lines, (line) => (isSmoothed(line) ? smoothing : 1));
  const format = isPercent ? percent : (value) => number(value);
  const index = cursor ?? data.steps.length - 1;

  useEffect(() => {
    const element = target.current;
    const isSingle = data.steps.length === 1;
    const series = [{}];
    const columns = [data.steps];
    const colors = figure.lines.map((line) => css(`--run-${colorOf(line)}`));
    const drawn = isStacked ? stacked(data.smooth) : data.smooth;
    figure.lines.forEach((line, position) => {
      const stroke = colors[position];
      if (hasBase(line) && !figure.axis) {
        series.push({ stroke: `${stroke}99`, width: 1, dash: [6, 4], spanGaps: true, points: { show: false } });
        columns.push(data.steps.map((step) => (step <= line.steps.at(-1) ? line.values[0] : null)));
      }
      if (isSmoothed(line) && figure.lines.length <= 8) {
        series.push({ stroke: `${stroke}55`, width: 1, spanGaps: true, points: { show: false } });
        columns.push(data.raw[position]);
      }
      const points = { show: line.evaluated || isSingle, size: 6, fill: stroke };
      const dash = runs.length > 1 ? DASHES[line.line % DASHES.length] : undefined;
      series.push({ stroke, width: 2, dash, fill: isStacked && position === 0 ? `${stroke}55` : undefined, spanGaps: true, points });
      columns.push(isLogarithmic ? drawn[position].map((value) => (value > 0 ? value : null)) : drawn[position]);
    });
    const axis = {
      stroke: css("--dim"),
      grid: { stroke: css("--grid"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const range = (_, low, high) => {
      if (figure.scale === "fraction") return [0, 1];
      const bottom = Math.min(0, low ?? 0);
      const top = Math.max(high ?? 1, ...figure.lines.flatMap((line) => line.intervals ?? []).map(([, bound]) => bound));
      return [bottom, top === bottom ? bottom + 1 : top + 0.06 * (top - bottom)];
    };
    const options = {
      width: element.clientWidth || 320,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "steps" }, points: { size: 7 }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: isSingle ? (_, x) => [x - 1, x + 1] : undefined }, y: isLogarithmic ? { distr: 3 } : { range } },
      axes: [
        { ...axis, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000] },
        { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => (isPercent ? `${Math.round(100 * tick)} %` : number(tick, 2))) },
      ],
      series,
      bands: isStacked ? colors.slice(1).map((stroke, below) => ({ series: [below + 2, below + 1], fill: `${stroke}55` })) : [],
      hooks: {
        draw: [(plot) => drawIntervals(plot, figure.lines, colors)],
        setCursor: [(plot) => setCursor(plot.cursor.idx ?? null)],
      },
    };
    const plot = new window.uPlot(options, columns, element);
    const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resize.observe(element);
    const choose = () => {
      const at = plot.cursor.idx;
      if (at === null || at === undefined || !onStep) return;
      const y = plot.posToVal(plot.cursor.top, "y");
      const near = (line) => Math.abs((data.smooth[line][at] ?? Infinity) - y);
      const best = figure.lines.map((_, line) => line).sort((a, b) => near(a) - near(b))[0];
      onStep(figure.lines[best].run, data.steps[at]);
    };
    plot.over.addEventListener("click", choose);
    return () => {
      resize.disconnect();
      plot.destroy();
    };
  }, [JSON.stringify(figure), smoothing, theme.value, runs.join()]);

  return html`<figure class="card chart">
    <figcaption>
      <h3>${figure.title}</h3>
      ${figure.note && html`<p class="dim">${figure.note}${!figure.axis && figure.lines.some(hasBase) && " Dashed: before training."}</p>`}
      <div class="readout" aria-live="off">
        <span class="dim">${figure.axis ?? "step"} ${number(data.steps[index])}</span>
        ${figure.lines.map(
          (line, position) => html`<span class="reading">
            <i class=${`swatch run-${colorOf(line)} ${line.line && runs.length > 1 ? "dotted" : ""}`}></i>
            ${runs.length === 1 ? figure.lines.length > 1 && line.label : line.line ? `${line.run}, ${line.label}` : line.run}
            <b>${format(data.smooth[position][index])}</b>
          </span>`,
        )}
      </div>
    </figcaption>
    <div class="plot" ref=${target} role="img" aria-label=${`${figure.title} over ${figure.axis ?? "steps"}`}></div>
  </figure>`;
}
