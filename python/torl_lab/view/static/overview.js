// The overview: runs, changes from first to last, curves, and settings in which the runs differ.

import { html, signal, useState } from "view/lib.js";
import { isExported, query, recordsRevision, states, useData } from "view/api.js";
import { Chart, RUN_COLORS } from "view/charts.js";
import { ago, count, duration, number, percent, signed, visible } from "view/format.js";
import { go, link } from "view/route.js";
import { Failure, Loading } from "view/parts.js";
import { Details, Results } from "view/report.js";

const smoothing = signal(null); // chosen number of steps
const added = signal([]);

export function Overview({ parameters }) {
  const chosen = parameters.getAll("run");
  const path = `/api/overview?${query({ run: chosen })}`;
  const { data, error } = useData(path, recordsRevision());
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  const runs = data.runs.map((run) => run.run);
  const isFlat = (figure) => figure.lines.every((line) => line.values.every((value) => value === 0));
  const figures = data.curves.filter((figure) => !isFlat(figure));
  const flat = data.curves.filter(isFlat);
  const compared = data.changes.filter((change) => change.problems > 0); // played at two steps
  const averaged = smoothing.value ?? Number(parameters.get("smoothing") ?? 8);
  const onStep = isExported ? null : (run, step) => go(link("trajectories", [], { run, step, sort: "reward" }));
  return html`
    <section class="runs" aria-label="Runs">
      ${data.runs.map((run, index) => html`<${RunCard} key=${run.run} run=${run} index=${index} />`)}
    </section>
    ${data.report && html`<${Results} report=${data.report} />`}
    ${compared.length > 0 && html`<${Changes} changes=${compared} runs=${runs} />`}
    ${figures.length > 0 &&
    html`<section>
      <div class="heading">
        <h2>Curves</h2>
        <label class="inline"
          >moving mean over
          <input
            type="range"
            min="1"
            max=${Math.max(32, averaged)}
            value=${averaged}
            onInput=${(event) => (smoothing.value = Number(event.target.value))}
          />
          <span class="digits">${averaged}</span> ${averaged === 1 ? "step" : "steps"}</label
        >
        ${data.metrics.length > 0 && html`<${AddMetric} names=${data.metrics} />`}
      </div>
      <p class="dim hint">${onStep && "A point opens the trajectories of its step. "}Evaluations are marked and not averaged.</p>
      <div class="charts">
        ${added.value.map((name) => html`<${AddedChart} key=${name} name=${name} chosen=${chosen} runs=${runs} smoothing=${averaged} onStep=${onStep} />`)}
        ${figures.map((figure) => html`<${Chart} key=${figure.title} figure=${figure} runs=${runs} smoothing=${averaged} onStep=${onStep} />`)}
      </div>
      ${flat.length > 0 && html`<p class="dim">Always zero: ${flat.map((figure) => figure.title.toLowerCase()).join(", ")}.</p>`}
    </section>`}
    ${data.report && html`<${Details} report=${data.report} />`}
    <${Settings} settings=${data.settings} />
  `;
}

function RunCard({ run, index }) {
  const state = states.value.find((each) => each.run === run.run);
  const isBuilding = state && state.progress !== null && state.progress < 1;
  const isSaved = state?.rows === undefined && run.rows === 0; // in a report, which has no index
  const isRecent = run.written && Date.now() / 1000 - run.written < 600;
  return html`<article class="card run-card">
    <h2><i class=${`swatch run-${index % RUN_COLORS}`}></i>${run.run}</h2>
    <p class="dim path">${run.path}</p>
    <dl>
      ${run.is_run &&
      html`<div><dt>steps</dt><dd>${number(run.steps)}${run.planned ? html`<span class="dim"> of ${number(run.planned)}</span>` : ""}</dd></div>
        <div><dt>time</dt><dd>${run.started ? duration(run.written - run.started) : "–"}</dd></div>`}
      ${!isSaved &&
      html`<div>
        <dt>trajectories</dt>
        <dd><a href=${link("trajectories", [], { run: run.run })}>${number(state?.rows ?? run.rows)}</a></dd>
      </div>`}
      ${run.model && html`<div class="wide"><dt>model</dt><dd class="wrap">${run.model}</dd></div>`}
      ${run.method && html`<div><dt>${run.method === "fine-tuning" ? "method" : "estimator"}</dt><dd>${run.method}</dd></div>`}
    </dl>
    ${run.is_run &&
    html`<p class="dim status">
      ${run.finished ? "finished" : isRecent ? html`<span class="live-dot"></span> being written` : "not finished"}
      ${run.written ? html`, last record ${isExported ? `${new Date(1000 * run.written).toISOString().slice(0, 16).replace("T", " ")} UTC` : ago(run.written)}` : ""}
    </p>`}
    ${run.error && html`<p class="problem">${run.error}</p>`}
    ${state?.error && html`<p class="problem">${state.error}</p>`}
    ${isBuilding &&
    html`<p class="building">
      <progress max="1" value=${state.progress} aria-label="Indexing"></progress>
      indexing, ${percent(state.progress)}
    </p>`}
  </article>`;
}

function Changes({ changes, runs }) {
  return html`<section>
    <h2>What rose, what was lost</h2>
    <div class="changes">
      ${changes.map((change) => html`<${Change} key=${`${change.run} ${change.set}`} change=${change} index=${runs.indexOf(change.run)} named=${runs.length > 1} />`)}
    </div>
  </section>`;
}

function Change({ change, index, named }) {
  const [shown, show] = useState(null);
  const difference = change.after - change.before;
  const width = change.half_width;
  const isClear = width !== null && Math.abs(difference) > width;
  const toggle = (kind) => () => show(shown === kind ? null : kind);
  return html`<article class="card change">
    <h3>
      ${named && html`<i class=${`swatch run-${index % RUN_COLORS}`}></i>${change.run}, `}${change.set}
      <span class="dim"> step ${change.steps[0]} → ${change.steps[1]}</span>
    </h3>
    <p class="figures">
      <span>${percent(change.before)} → <b>${percent(change.after)}</b></span>
      <span class=${isClear ? (difference > 0 ? "right" : "wrong") : "dim"}>
        ${signed(100 * difference, 1)} points${width === null ? "" : html` <small>± ${number(100 * width, 1)}</small>`}
      </span>
      <small class="dim">${count(change.problems, "problem")}</small>
    </p>
    <p class="buttons">
            ${["gained", "lost"].map(
              (kind) => html`<button
                class=${kind === "gained" ? "quiet right" : "quiet wrong"}
                aria-expanded=${shown === kind}
                disabled=${change.counts[kind] === 0}
                onClick=${toggle(kind)}
              >
                ${kind === "gained" ? "▲" : "▼"} ${number(change.counts[kind])} ${kind}
              </button>`,
            )}
          </p>
          ${shown &&
          html`<ol class="problems">
            ${change[shown].map(
              (each) => html`<li>
                <a href=${link("problem", [], { id: each.key, run: change.run })}>${each.problem}</a>
                <span class="dim">${percent(each.before)} → ${percent(each.after)}</span>
              </li>`,
            )}
            ${change.counts[shown] > change[shown].length && html`<li class="dim">and ${number(change.counts[shown] - change[shown].length)} more</li>`}
          </ol>`}
  </article>`;
}

function AddMetric({ names }) {
  const add = (event) => {
    const name = event.target.value;
    if (names.includes(name) && !added.value.includes(name)) added.value = [name, ...added.value];
    if (names.includes(name)) event.target.value = "";
  };
  return html`<label class="inline"
    >add a metric
    <input type="search" list="metric-names" placeholder="learner/…" onChange=${add} />
    <datalist id="metric-names">${names.map((name) => html`<option value=${name}></option>`)}</datalist></label
  >`;
}

function AddedChart({ name, chosen, runs, smoothing, onStep }) {
  const { data } = useData(`/api/metric?${query({ name, run: chosen })}`, recordsRevision());
  if (!data) return null;
  return html`<div class="added">
    <button class="quiet close" aria-label=${`Remove ${name}`} onClick=${() => (added.value = added.value.filter((each) => each !== name))}>×</button>
    <${Chart} figure=${data} runs=${runs} smoothing=${smoothing} onStep=${onStep} />
  </div>`;
}

function Settings({ settings }) {
  if (settings.runs.length === 0) return null;
  return html`<section>
    <h2>Settings</h2>
    ${settings.runs.length > 1 &&
    (settings.differences.length === 0
      ? html`<p class="dim">The runs have the same settings.</p>`
      : html`<div class="table card">
          <table>
            <thead><tr><th>differs</th>${settings.runs.map((run) => html`<th>${run}</th>`)}</tr></thead>
            <tbody>
              ${settings.differences.map(
                (row) => html`<tr><td><code>${row.key}</code></td>${row.values.map((value) => html`<td><code>${value === null ? "unset" : JSON.stringify(value)}</code></td>`)}</tr>`,
              )}
            </tbody>
          </table>
        </div>`)}
    ${settings.runs.map(
      (run, index) => html`<details>
        <summary>the resolved configuration of ${run}</summary>
        <pre class="card">${visible(settings.texts[index])}</pre>
      </details>`,
    )}
  </section>`;
}
