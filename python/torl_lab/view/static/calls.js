// A tool call: its request, its outcome, another run of it in the sandbox, and experiments with other code.

import { html, signal, useEffect, useRef, useState } from "view/lib.js";
import { isExported, post } from "view/api.js";
import { Code } from "view/code.js";
import { Difference } from "view/diff.js";
import { duration, visible } from "view/format.js";
import { Badge, STATUS_LABELS } from "view/parts.js";

// Each change runs all calls of the shown trajectory again.
export const allRuns = signal(0);

export function Call({ call, number: index, place }) {
  const [replay, setReplay] = useState(null);
  const [isEditing, setEditing] = useState(false);
  const code = call.arguments?.code;
  const run = async () => {
    setReplay({ isRunning: true });
    setReplay(await post("/api/replay", { ...place, call: index }).catch((error) => ({ error })));
  };
  const started = useRef(allRuns.value);
  useEffect(() => {
    if (allRuns.value !== started.current && call.ran) run();
    started.current = allRuns.value;
  }, [allRuns.value]);
  const status = call.ran ? call.status : "not_executed";
  return html`<article class="call-card">
    <header>
      <b>call ${index + 1}</b> ${call.tool ?? "no tool"}
      <${Badge} kind=${call.ran && call.status === "ok" ? "right" : "wrong"}>${STATUS_LABELS[status]}${call.error ? `: ${visible(call.error)}` : ""}<//>
      <span class="dim"
        >${call.details?.cpu_seconds !== undefined ? `${duration(call.details.cpu_seconds)} of CPU, ` : ""}waited ${duration(call.wait_seconds)}</span
      >
      ${call.ran &&
      !isExported &&
      html`<span class="actions">
        <button data-action="replay" onClick=${run} disabled=${replay?.isRunning}>${replay?.isRunning ? "running …" : "Run again"}</button>
        ${code !== undefined && html`<button class="quiet" data-action="edit" aria-expanded=${isEditing} onClick=${() => setEditing(!isEditing)}>Edit and run</button>`}
      </span>`}
    </header>
    <details open=${!call.ran || call.status !== "ok"}>
      <summary>request and outcome</summary>
      <div class="call-body">
      ${code !== undefined
        ? html`<pre class="code"><${Code} text=${code} /></pre>`
        : call.arguments && html`<pre class="code">${visible(JSON.stringify(call.arguments, null, 2))}</pre>`}
      <${Outcome} outcome=${call} />
      </div>
    </details>
    ${replay && !replay.isRunning && html`<${Replay} replay=${replay} />`}
    ${isEditing && html`<${Experiment} code=${code} place=${place} index=${index} recorded=${call} />`}
  </article>`;
}

function Outcome({ outcome }) {
  const details = outcome.details ?? {};
  const extra = ["stderr", "traceback"].filter((name) => details[name] && details[name] !== outcome.text);
  return html`<div class="outcome">
    ${outcome.text ? html`<pre class="output">${visible(outcome.text)}</pre>` : html`<p class="dim">no output</p>`}
    ${extra.map(
      (name) => html`<details><summary>${name}</summary><pre class="output">${visible(details[name])}</pre></details>`,
    )}
  </div>`;
}

function Replay({ replay }) {
  if (replay.error) return html`<p class="problem" role="alert">cannot be run again: ${replay.error.message}</p>`;
  if (replay.reproduced) {
    return html`<p class="replay reproduced" role="status">
      <b class="right">✓ reproduced</b> status, output and error equal the record${replay.note && html` <span class="dim">(${replay.note})</span>`}
    </p>`;
  }
  return html`<div class="replay differs" role="status">
    <p><b class="wrong">✗ differs from the record</b>${replay.note && html` <span class="dim">(${replay.note})</span>`}</p>
    ${replay.differences.map(
      (part) => html`<h4>${part.name}: <span class="removed">− record</span>, <span class="added">+ now</span></h4>
        <${Difference} before=${part.recorded} now=${part.now} />`,
    )}
  </div>`;
}

function Experiment({ code, place, index, recorded }) {
  const [text, setText] = useState(code);
  const [result, setResult] = useState(null);
  const run = async () => {
    setResult({ isRunning: true });
    setResult(await post("/api/experiment", { ...place, call: index, code: text }).catch((error) => ({ error })));
  };
  const submit = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  };
  return html`<section class="experiment" aria-label="Experiment">
    <p class="experiment-mark">Experiment: not part of the record</p>
    <textarea
      spellcheck=${false}
      aria-label="Code of the experiment"
      rows=${Math.min(24, text.split("\n").length + 1)}
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${submit}
    ></textarea>
    <p>
      <button data-action="experiment" onClick=${run} disabled=${result?.isRunning}>${result?.isRunning ? "running …" : "Run the experiment"}</button>
      <span class="dim"> Ctrl+Enter. The calls before it run first, and nothing is written.</span>
    </p>
    ${result?.error && html`<p class="problem" role="alert">${result.error.message}</p>`}
    ${result?.outcome &&
    html`<div class="experiment-result" role="status">
      <p><${Badge} kind=${result.outcome.status === "ok" ? "right" : "wrong"}>${STATUS_LABELS[result.outcome.status]}<//> <span class="dim">${result.note}</span></p>
      ${result.outcome.text === recorded.text
        ? html`<pre class="output">${visible(result.outcome.text)}</pre><p class="dim">the same text as in the record</p>`
        : html`<${Difference} before=${recorded.text} now=${result.outcome.text} />`}
    </div>`}
  </section>`;
}
