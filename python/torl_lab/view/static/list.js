// The list of trajectories with facets, words, regular expressions and orders.

import { html, signal, useEffect, useMemo, useRef, useState } from "view/lib.js";
import { isExported, query, revisionOf, states, streamLines, useData } from "view/api.js";
import { RUN_COLORS } from "view/charts.js";
import { number, percent, visible } from "view/format.js";
import { onKey } from "view/keys.js";
import { Advantage, Failure, FlagBadges, Loading, STATUS_LABELS, Verdict } from "view/parts.js";
import { go, link, linkTo, listOf, parametersOf } from "view/route.js";

const PAGE = 60;
const SORTS = {
  step: "step",
  reward: "reward",
  advantage: "advantage",
  calls: "calls",
  failed: "failed calls",
  tokens: "tokens",
  seconds: "seconds",
  sample: "sample",
  age: "policy age",
};
const FLAGS = {
  correct: ["right", "wrong"],
  trained: ["trained on", "outside the batch"],
  invented: ["invented a result", "invented none"],
  recovered: ["recovered from an error", "not recovered"],
  valid_format: ["valid format", "invalid format"],
  answered: ["with an answer", "without an answer"],
  grader_failure: ["grader failed", "grader decided"],
  branches: ["several sequences", "one sequence"],
  damaged: ["damaged line", "readable"],
};
const SIGNS = { positive: "positive", negative: "negative", zero: "zero", none: "outside the batch" };
const RANGES = { reward: "reward", tokens: "tokens", advantage: "advantage", seconds: "seconds", age: "policy age", turns: "turns" };

// The order of the last list, for the keys that move between trajectories.
export const lastList = signal({ address: link("trajectories"), places: [] });

export function Trajectories({ parameters }) {
  const filters = parametersOf(parameters);
  const labels = listOf(filters.run);
  const { pattern, shown = String(PAGE), ...conditions } = filters;
  const path = `/api/trajectories?${query({ ...conditions, limit: shown })}`;
  const { data, error, isLoading } = useData(path, revisionOf(labels.length ? labels : null));
  const found = usePattern(pattern, conditions);
  const set = (changes) => go(link("trajectories", [], { ...filters, shown: undefined, ...changes }));
  const rows = pattern ? found.rows : (data?.rows ?? []);
  const [isOpen, setOpen] = useState(false);
  const [selected, select] = useSelection(rows);
  useEffect(() => {
    lastList.value = { address: link("trajectories", [], filters), places: rows.map(({ run, file, line }) => ({ run, file, line })) };
  }, [rows]);
  const building = states.value.filter((state) => state.progress !== null && state.progress < 1);
  return html`<div class="list-layout">
    <aside class=${isOpen ? "facets open" : "facets"} aria-label="Filters">
      <button class="facet-toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Filters</button>
      <div class="facet-body">${data?.facets && html`<${Facets} facets=${data.facets} filters=${filters} set=${set} />`}</div>
    </aside>
    <div class="results">
      <${SearchBar} filters=${filters} set=${set} />
      <${Chips} filters=${filters} set=${set} />
      ${error && html`<${Failure} error=${error} />`}
      ${found.error && html`<${Failure} error=${found.error} />`}
      <p class="dim count" role="status">
        ${pattern
          ? html`${number(found.rows.length)} found, ${number(found.searched)} of ${number(found.total)} searched${found.full ? ", stopped" : ""}
              ${found.isRunning && html` <button class="quiet" onClick=${found.stop}>stop</button>`}`
          : data && html`${number(data.total)} ${data.total === 1 ? "trajectory" : "trajectories"}`}
        ${building.map((state) => html`, indexing ${state.run}: ${percent(state.progress)}`)}
      </p>
      ${!data && !error && html`<${Loading} />`}
      <ol class=${isLoading ? "rows stale" : "rows"}>
        ${rows.map(
          (row, index) => html`<${Row} key=${`${row.run} ${row.file} ${row.line}`} row=${row} isSelected=${index === selected} onSelect=${() => select(index)} />`,
        )}
      </ol>
      ${data && rows.length === 0 && !found.isRunning && html`<p class="empty">No trajectory meets these conditions.</p>`}
      ${!pattern &&
      data &&
      rows.length < data.total &&
      rows.length < 500 &&
      !isExported &&
      html`<button class="more" onClick=${() => go(link("trajectories", [], { ...filters, shown: Math.min(500, Number(shown) + PAGE * 2) }))}>
        show more of ${number(data.total)}
      </button>`}
      ${!pattern && data && rows.length >= 500 && rows.length < data.total && html`<p class="dim">The first 500 are shown: add a condition.</p>`}
    </div>
  </div>`;
}

function useSelection(rows) {
  const [selected, select] = useState(-1);
  useEffect(() => select(-1), [rows.length && `${rows[0].run} ${rows[0].file} ${rows[0].line}`]);
  const move = (by) => select((before) => Math.min(rows.length - 1, Math.max(0, before + by)));
  useEffect(() => document.querySelector(".rows > .selected")?.scrollIntoView({ block: "nearest" }), [selected]);
  onKey("j", "next trajectory", () => move(1));
  onKey("k", "previous trajectory", () => move(-1));
  onKey("Enter", "open the trajectory", () => selected >= 0 && go(linkTo(rows[selected])), { isGlobal: false });
  return [selected, select];
}

function usePattern(pattern, conditions) {
  const empty = { rows: [], searched: 0, total: 0, full: false, isRunning: false, error: null };
  const [state, setState] = useState(empty);
  const abort = useRef(null);
  const key = JSON.stringify([pattern, conditions]);
  useEffect(() => {
    setState(empty);
    if (!pattern) return undefined;
    abort.current = new AbortController();
    setState({ ...empty, isRunning: true });
    const receive = (message) =>
      setState((old) => {
        if (message.found) return { ...old, rows: [...old.rows, message.found] };
        return { ...old, ...message, error: message.error ? new Error(message.error) : null };
      });
    streamLines(`/api/search?${query({ ...conditions, pattern })}`, receive, abort.current.signal)
      .catch((error) => error.name !== "AbortError" && setState((old) => ({ ...old, error })))
      .finally(() => setState((old) => ({ ...old, isRunning: false })));
    return () => abort.current.abort();
  }, [key]);
  return { ...state, stop: () => abort.current?.abort() };
}

function SearchBar({ filters, set }) {
  const input = useRef(null);
  const isPattern = filters.pattern !== undefined;
  const [mode, setMode] = useState(isPattern ? "pattern" : "words");
  onKey("/", "search", () => input.current.focus());
  const submit = (event) => {
    event.preventDefault();
    const text = input.current.value.trim();
    set({ words: undefined, pattern: undefined, about: undefined, [mode]: text || undefined });
  };
  const current = filters[mode] ?? "";
  return html`<form class="search" role="search" onSubmit=${submit}>
    <select aria-label="Search in" value=${mode} onChange=${(event) => setMode(event.target.value)}>
      <option value="words">words</option>
      <option value="pattern">regular expression</option>
      <option value="about">problem</option>
    </select>
    <input
      ref=${input}
      type="search"
      key=${`${mode} ${current}`}
      defaultValue=${current}
      aria-label="Search"
      placeholder=${{ words: "all of these words in the response; sum* for a beginning", pattern: "for example ZeroDivisionError|\\bassert\\b", about: "text in a problem" }[mode]}
      spellcheck=${false}
    />
    <button>search</button>
    <label class="inline"
      >by
      <select value=${filters.sort ?? "step"} onChange=${(event) => set({ sort: event.target.value })}>
        ${Object.entries(SORTS).map(([name, label]) => html`<option value=${name}>${label}</option>`)}
      </select></label
    >
    <button
      type="button"
      class="quiet"
      title="reverse the order"
      aria-label=${filters.order === "asc" ? "ascending" : "descending"}
      onClick=${() => set({ order: filters.order === "asc" ? undefined : "asc" })}
    >
      ${filters.order === "asc" ? "↑" : "↓"}
    </button>
  </form>`;
}

const CHIP_LABELS = { words: "words", pattern: "expression", about: "problem text", problem: "problem", step: "step" };

function Chips({ filters, set }) {
  const chips = [];
  for (const [name, value] of Object.entries(filters)) {
    if (["sort", "order", "shown"].includes(name)) continue;
    for (const each of listOf(value)) {
      const remaining = listOf(value).filter((other) => other !== each);
      chips.push({ name, text: describe(name, each), remove: () => set({ [name]: remaining.length ? remaining : undefined }) });
    }
  }
  if (chips.length === 0) return null;
  const clear = () => go(link("trajectories", [], { sort: filters.sort, order: filters.order }));
  return html`<p class="chips">
    ${chips.map((chip) => html`<button class="chip" onClick=${chip.remove} title="remove this condition">${visible(chip.text)} <span aria-hidden="true">×</span></button>`)}
    <button class="quiet" onClick=${clear}>clear all</button>
  </p>`;
}

function describe(name, value) {
  if (name in FLAGS) return FLAGS[name][value === "1" ? 0 : 1];
  if (name === "sign") return `advantage ${SIGNS[value] ?? value}`;
  if (name === "status") return `a call ended with ${STATUS_LABELS[value] ?? value}`;
  if (["set", "run"].includes(name)) return value;
  return `${CHIP_LABELS[name] ?? name} ${value}`;
}

function Facets({ facets, filters, set }) {
  const toggled = (name, value) => {
    const chosen = listOf(filters[name]);
    const next = chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value];
    set({ [name]: next.length ? next : undefined });
  };
  const named = (name, labels) =>
    Object.entries(facets[name])
      .filter(([value, total]) => total > 0 || listOf(filters[name]).includes(value))
      .map(([value, total]) => ({ value, label: labels?.[value] ?? value, total, isOn: listOf(filters[name]).includes(value), choose: () => toggled(name, value) }));
  const flags = Object.entries(FLAGS).map(([name, labels]) => [
    name,
    [1, 0].map((value, index) => ({
      value,
      label: labels[index],
      total: facets[name][value],
      isOn: filters[name] === String(value),
      choose: () => set({ [name]: filters[name] === String(value) ? undefined : value }),
    })),
  ]);
  const numbers = (name) =>
    (facets[name] ?? []).map(([value, total]) => ({
      value,
      label: number(value),
      total,
      isOn: filters[name] === String(value),
      choose: () => set({ [name]: filters[name] === String(value) ? undefined : value }),
    }));
  const [outcome, ...others] = flags;
  const isShown = ([name, values]) => (name !== "trained" && values[0].total && values[1].total) || filters[name] !== undefined;
  const rare = others.filter(isShown);
  return html`
    ${Object.keys(facets.run).length > 1 && html`<${Facet} title="run" values=${named("run")} />`}
    <${Facet} title="outcome" values=${outcome[1]} />
    <${Facet} title="set" values=${named("set")} />
    <${Steps} bins=${facets.step} filters=${filters} set=${set} />
    <${Facet} title="calls" values=${numbers("calls")} />
    <${Facet} title="outcome of a call" values=${named("status", STATUS_LABELS)} />
    <${Facet} title="advantage" values=${named("sign", SIGNS)} />
    ${facets.reward?.length <= 12 && html`<${Facet} title="reward" values=${numbers("reward")} />`}
    <${Facet} title="end" values=${named("finish")} />
    ${rare.map(([name, values]) => html`<${Facet} key=${name} title=${name.replace("_", " ")} values=${values} />`)}
    ${Object.entries(RANGES).map(([name, label]) => html`<${Range} key=${name} name=${name} label=${label} value=${filters[name]} set=${set} />`)}
  `;
}

function Facet({ title, values }) {
  const largest = Math.max(1, ...values.map((each) => each.total));
  if (values.length === 0) return null;
  return html`<fieldset class="facet">
    <legend>${title}</legend>
    ${values.map(
      (each) => html`<button class=${each.isOn ? "value on" : "value"} aria-pressed=${each.isOn} onClick=${each.choose}>
        <span class="share" style=${{ width: `${(100 * each.total) / largest}%` }}></span>
        <span class="name">${visible(each.label)}</span><span class="digits">${number(each.total)}</span>
      </button>`,
    )}
  </fieldset>`;
}

function Steps({ bins, filters, set }) {
  if (bins.length < 2 && !filters.step) return null;
  const largest = Math.max(1, ...bins.map((bin) => bin[2]));
  const [low, high] = parseRange(filters.step);
  return html`<fieldset class="facet">
    <legend>step</legend>
    <div class="histogram">
      ${bins.map(([first, last, total]) => {
        const isOn = filters.step !== undefined && last >= low && first <= high;
        const value = first === last ? String(first) : `${first}..${last}`;
        const choose = () => set({ step: filters.step === value ? undefined : value });
        return html`<button
          class=${isOn ? "bin on" : "bin"}
          title=${`${first === last ? `step ${first}` : `steps ${first} to ${last}`}: ${number(total)}`}
          aria-label=${`steps ${first} to ${last}, ${total} trajectories`}
          onClick=${choose}
        ><span style=${{ height: `${total ? Math.max(6, (100 * total) / largest) : 0}%` }}></span></button>`;
      })}
    </div>
    <p class="ends dim"><span>${bins[0]?.[0]}</span><span>${bins.at(-1)?.[1]}</span></p>
  </fieldset>`;
}

function parseRange(text) {
  if (text === undefined) return [-Infinity, Infinity];
  const [low, high] = text.includes("..") ? text.split("..") : [text, text];
  return [low === "" ? -Infinity : Number(low), high === "" ? Infinity : Number(high)];
}

function Range({ name, label, value, set }) {
  const [low, high] = useMemo(() => (value === undefined ? ["", ""] : value.includes("..") ? value.split("..") : [value, value]), [value]);
  const change = (event) => {
    const form = event.target.form;
    const text = `${form.elements.low.value}..${form.elements.high.value}`;
    set({ [name]: text === ".." ? undefined : text });
  };
  return html`<form class="facet range" onSubmit=${(event) => event.preventDefault()}>
    <span class="legend">${label}</span>
    <input name="low" inputmode="decimal" aria-label=${`${label} from`} placeholder="from" key=${`low ${low}`} defaultValue=${low} onChange=${change} />
    <input name="high" inputmode="decimal" aria-label=${`${label} to`} placeholder="to" key=${`high ${high}`} defaultValue=${high} onChange=${change} />
  </form>`;
}

function Row({ row, isSelected, onSelect }) {
  const index = states.value.findIndex((state) => state.run === row.run);
  return html`<li class=${isSelected ? "selected" : ""}>
    <a href=${linkTo(row)} onFocus=${onSelect}>
      <${Verdict} facets=${row} />
      <span class="where dim">
        ${states.value.length > 1 && html`<i class=${`swatch run-${index % RUN_COLORS}`} title=${row.run}></i>`}
        ${row.set === "training" ? "" : `${row.set} `}step ${row.step}
      </span>
      <span class="what">
        <span class="question">${visible(row.question ?? row.error ?? "")}</span>
        <span class="second">
          <span class="end dim">${visible((row.end ?? "").trim().split("\n").at(-1))}</span>
          <span class="tags">
            ${row.statuses.map((status) => html`<span class=${`call ${status}`} title="outcome of a call">${STATUS_LABELS[status] ?? status}</span>`)}
            <${FlagBadges} facets=${row} />
          </span>
        </span>
      </span>
      <span class="digits calls" title="calls">${row.calls} <small>${row.calls === 1 ? "call" : "calls"}</small></span>
      <span class="digits tokens" title="tokens">${number(row.tokens)} <small>tok</small></span>
      <span class="digits reward" title="reward">${number(row.reward, 2)}</span>
      <${Advantage} value=${row.advantage} />
    </a>
  </li>`;
}
