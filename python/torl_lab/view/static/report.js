// The parts of a report that the overview of runs does not have: outcome, tables, figures, and sample trajectories.

import { html } from "view/lib.js";
import { Chart } from "view/charts.js";
import { percent, visible } from "view/format.js";
import { Badge, FlagBadges, STATUS_LABELS, Verdict } from "view/parts.js";
import { Segment, turnNumber } from "view/trajectory.js";

const NO_TOKENS = { total: 0 };

// What comes before the curves.
export function Results({ report }) {
  const { title, statement = [], outcome = [], tables = [], reload_seconds: seconds } = report;
  return html`${title && html`<h1>${title}</h1>`}
    ${seconds > 0 && html`<p class="dim">An open page is loaded again every ${seconds} s.</p>`}
    ${statement.length > 0 && html`<div class="card statement">${statement.map((text) => html`<p>${visible(text)}</p>`)}</div>`}
    ${outcome.length > 0 && html`<ul class="outcome">${outcome.map((text) => html`<li>${visible(text)}</li>`)}</ul>`}
    ${tables.map((table) => html`<${Table} table=${table} />`)}`;
}

// What comes after them.
export function Details({ report }) {
  const { bars = [], figures = [], examples = [] } = report;
  const charts = [...figures.map((figure) => html`<${Chart} figure=${figure} runs=${[...new Set(figure.lines.map((line) => line.run))]} smoothing=${1} />`), ...bars.map((chart) => html`<${Bars} chart=${chart} />`)];
  return html`${charts.length > 0 && html`<section class="charts figures">${charts}</section>`}
    ${examples.length > 0 &&
    html`<section>
      <h2>Sample trajectories</h2>
      <p class="dim">One problem of each kind, preferably with tool calls: not a representative sample.</p>
      ${examples.map((example) => html`<${Example} example=${example} />`)}
    </section>`}`;
}

function Table({ table }) {
  const cell = (value) => (Array.isArray(value) ? html`<td class=${value[1] === "better" ? "right" : "wrong"}>${value[0]}</td>` : html`<td>${value}</td>`);
  return html`<section>
    <h2>${table.title}</h2>
    <div class="table card">
      <table>
        <thead><tr>${table.head.map((name) => html`<th>${name}</th>`)}</tr></thead>
        <tbody>${table.rows.map((row) => html`<tr>${row.map(cell)}</tr>`)}</tbody>
      </table>
    </div>
    ${table.note && html`<p class="dim">${table.note}</p>`}
  </section>`;
}

function Bars({ chart }) {
  const at = (value) => `${100 * Math.min(1, Math.max(0, value))}%`;
  return html`<figure class="card chart">
    <figcaption><h3>${chart.title}</h3><p class="dim">${chart.note}</p></figcaption>
    ${Object.entries(chart.groups).map(
      ([group, bars]) => html`<h4>${group}</h4>
        ${bars.map(
          ([series, value, low, high]) => html`<p class="bar-row">
            <span>${series}</span>
            <span class="track"><i style=${{ width: at(value) }}></i><b style=${{ left: at(low), width: at(high - low) }}></b></span>
            <span class="digits">${percent(value)}</span>
          </p>`,
        )}`,
    )}
  </figure>`;
}

function Example({ example }) {
  return html`<article class="card example">
    <h3>${example.title}</h3>
    <p class="question">${visible(example.question)}</p>
    <p class="answers"><span>reference <code>${visible(example.reference)}</code></span> <span class="dim">problem ${visible(example.problem)}</span></p>
    <div class="pair">${example.responses.map((response) => html`<${Response} response=${response} />`)}</div>
  </article>`;
}

function Response({ response }) {
  const last = response.sequences.length - 1;
  return html`<section class="response">
    <h4>
      ${response.title} <span class="dim">step ${response.step}</span> <${Verdict} facets=${response} long=${true} />
      <${FlagBadges} facets=${response} />
      ${response.failure && html`<${Badge} kind="wrong">grader ${visible(response.failure)}<//>`}
      ${response.statuses.map((status) => html`<${Badge} kind=${status === "ok" ? "right" : "wrong"}>run: ${STATUS_LABELS[status]}<//>`)}
    </h4>
    ${response.sequences.map((sequence, index) =>
      index < last
        ? html`<details><summary>another sequence of this episode (${index + 1})</summary><${Segments} sequence=${sequence} /></details>`
        : html`<${Segments} sequence=${sequence} />`,
    )}
  </section>`;
}

const Segments = ({ sequence }) =>
  sequence.map((segment, index) => html`<${Segment} key=${index} segment=${segment} turn=${turnNumber(sequence, index)} tokens=${NO_TOKENS} />`);
