// One problem over all steps, sets and runs, or all problems that share an id.

import { html, useState } from "view/lib.js";
import { query, revisionOf, states, useData } from "view/api.js";
import { RUN_COLORS } from "view/charts.js";
import { compareLink } from "view/compare.js";
import { count, number, percent, signed, visible } from "view/format.js";
import { Failure, isRight, Loading } from "view/parts.js";
import { link, linkTo } from "view/route.js";

export function Problem({ parameters }) {
  const id = parameters.get("id");
  const { data, error } = useData(`/api/problem?${query({ id })}`, revisionOf(null));
  const [picked, pick] = useState([]);
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  const toggle = (attempt) => pick(picked.includes(attempt) ? picked.filter((each) => each !== attempt) : [...picked, attempt].slice(-8));
  return html`<article class="problem-view">
    ${data.map((problem) => html`<${History} key=${problem.key} problem=${problem} picked=${picked} toggle=${toggle} />`)}
    <p class="pick-bar">
      ${picked.length < 2
        ? html`<span class="dim">A column is a step, and • is a call. Mark two or more attempts to see them side by side.</span>`
        : html`<a class="button" href=${compareLink(picked)}>${picked.length} side by side</a> <button class="quiet" onClick=${() => pick([])}>clear</button>`}
    </p>
  </article>`;
}

function History({ problem, picked, toggle }) {
  const lanes = groupBy(problem.attempts, (attempt) => `${attempt.run}\n${attempt.set}`);
  return html`<nav class="crumbs" aria-label="Position">
      <a href=${link("trajectories", [], { problem: problem.key })}>all ${count(problem.attempts.length, "attempt")} as a list</a>
      <span class="dim">problem ${visible(problem.name)}</span>
    </nav>
    <header class="card problem-card">
      <p class="question">${visible(problem.question)}</p>
      <p class="answers"><span>reference <code>${visible(problem.answer)}</code></span></p>
    </header>
    ${[...lanes].map(([key, attempts]) => html`<${Lane} key=${key} attempts=${attempts} picked=${picked} toggle=${toggle} />`)}`;
}

function groupBy(values, keyOf) {
  const groups = new Map();
  for (const value of values) {
    const key = keyOf(value);
    groups.set(key, [...(groups.get(key) ?? []), value]);
  }
  return groups;
}

function Lane({ attempts, picked, toggle }) {
  const { run, set } = attempts[0];
  const steps = [...groupBy(attempts, (attempt) => attempt.step)];
  const index = states.value.findIndex((state) => state.run === run);
  const first = attempts[0];
  const last = steps.at(-1)[1].at(-1);
  const mean = (values) => values.filter(isRight).length / values.length;
  return html`<section class="card lane">
    <h3>
      <i class=${`swatch run-${index % RUN_COLORS}`}></i>${run}, ${set}
      <span class="dim"> ${percent(mean(steps[0][1]))} at step ${steps[0][0]}${steps.length > 1 && html` → ${percent(mean(steps.at(-1)[1]))} at step ${steps.at(-1)[0]}`}</span>
      ${steps.length > 1 && html` <a class="button" href=${compareLink([first, last])}>first and last side by side</a>`}
    </h3>
    <div class="attempts">
      ${steps.map(
        ([step, members]) => html`<div class="attempt-step">
          <span class="dim digits">${step}</span>
          ${members.map(
            (attempt) => html`<span class=${`attempt ${isRight(attempt) ? "right" : "wrong"} ${picked.includes(attempt) ? "picked" : ""}`}>
              <a href=${linkTo(attempt)} title=${describe(attempt)}
                ><span aria-hidden="true">${isRight(attempt) ? "✓" : "✗"}</span><small>${attempt.calls ? "•".repeat(Math.min(4, attempt.calls)) : ""}</small
                ><span class="unseen">${describe(attempt)}</span></a
              >
              <input type="checkbox" aria-label=${`mark ${describe(attempt)}`} checked=${picked.includes(attempt)} onChange=${() => toggle(attempt)} />
            </span>`,
          )}
        </div>`,
      )}
    </div>
  </section>`;
}

const describe = (attempt) =>
  `step ${attempt.step}, sample ${attempt.sample}: ${isRight(attempt) ? "right" : "wrong"}, reward ${number(attempt.reward, 2)}, advantage ${attempt.advantage === null ? "none" : signed(attempt.advantage, 2)}, ${count(attempt.calls, "call")}, ${attempt.tokens} tokens`;
