// One trajectory: problem, grade, turns and observations, tokens, calls, its group, and the verdict of the audit.

import { html, signal, useEffect, useState } from "view/lib.js";
import { isExported, post, query, revisionOf, save, states, useData } from "view/api.js";
import { allRuns, Call } from "view/calls.js";
import { Code } from "view/code.js";
import { count, duration, number, signed, visible } from "view/format.js";
import { onKey } from "view/keys.js";
import { lastList } from "view/list.js";
import { Badge, Failure, FlagBadges, INVENTED, isRight, Loading, Verdict } from "view/parts.js";
import { go, link, linkTo } from "view/route.js";
import { chosenToken, ColorChoice, coloring, setColoring, TokenNumbers, Tokens, wrongTokens } from "view/tokens.js";

export function Trajectory({ parts }) {
  const [run, file, line] = parts;
  const place = { run, file, line: Number(line) };
  const [start, setStart] = useState(0);
  const path = `/api/trajectory?${query({ ...place, start: start || undefined })}`;
  // The texts of tokens are known at the end of the first indexing.
  const isIndexed = states.value.find((state) => state.run === run)?.progress === 1;
  const isFixed = ({ sequence }) => sequence.tokens.texts !== null || sequence.tokens.total === 0;
  const { data, error, isLoading } = useData(path, `${revisionOf([run])} ${isIndexed}`, { isFixed });
  useEffect(() => {
    chosenToken.value = null;
    wrongTokens.value = new Set();
    setStart(0);
  }, [run, file, line]);
  // These also work while a trajectory is loaded, so that one can leaf through a list.
  const listed = neighborsOf(place);
  onKey("j", "next trajectory of the list", () => listed(1) && go(linkTo(listed(1))));
  onKey("k", "previous trajectory of the list", () => listed(-1) && go(linkTo(listed(-1))));
  onKey("u", "back to the list", () => go(lastList.value.address));
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data || (isLoading && data.facets.line !== place.line)) return html`<${Loading} />`;
  return html`<${Shown} key=${`${run} ${file} ${line}`} data=${data} place=${place} setStart=${setStart} />`;
}

// The function of a distance that returns a neighbor in the last list, if the trajectory is in it.
function neighborsOf(place) {
  const { places } = lastList.value;
  const index = places.findIndex((each) => each.run === place.run && each.file === place.file && each.line === place.line);
  return (by) => (index < 0 ? undefined : places[index + by]);
}

function Shown({ data, place, setStart }) {
  const { facets, grade, problem, sequence } = data;
  const position = data.members.findIndex((member) => member.file === place.file && member.line === place.line);
  const member = (by) => data.members[position + by];
  const listed = neighborsOf(place);
  const open = (each) => each && go(linkTo(each));
  onKey("]", "next member of the group", () => open(member(1)));
  onKey("[", "previous member of the group", () => open(member(-1)));
  onKey("g", "the group side by side", () => go(link("group", [place.run, place.file, place.line])));
  onKey("p", "the problem over all steps", () => go(link("problem", [], { id: problem.key, run: place.run })));
  onKey("c", "next color of tokens", () => nextColor(sequence.tokens));
  onKey("ArrowRight", "next token", () => moveToken(sequence.tokens, 1), { isGlobal: false });
  onKey("ArrowLeft", "previous token", () => moveToken(sequence.tokens, -1), { isGlobal: false });
  return html`<article class="trajectory">
    <nav class="crumbs" aria-label="Position">
      <a href=${lastList.value.address}>← list</a>
      <span class="dim">${place.run} · ${facets.set} · step ${facets.step} · group ${visible(data.group)} · sample ${facets.sample}</span>
      <span class="actions">
        ${(listed(1) || listed(-1)) &&
        html`<a class=${listed(-1) ? "button" : "button off"} href=${listed(-1) ? linkTo(listed(-1)) : undefined}>‹ previous</a>
          <a class=${listed(1) ? "button" : "button off"} href=${listed(1) ? linkTo(listed(1)) : undefined}>next ›</a>`}
      </span>
    </nav>
    <header class="card problem-card">
      <p class="question">${visible(problem.question)}</p>
      <p class="answers">
        <${Verdict} facets=${facets} long=${true} />
        <span>answer <code>${grade.answer === null ? "none" : visible(grade.answer)}</code></span>
        <span>reference <code>${visible(problem.answer)}</code></span>
        <${FlagBadges} facets=${facets} />
      </p>
      <${Facts} data=${data} />
    </header>
    <nav class="members" aria-label="Group">
      <span class="dim">group of ${data.members.length}</span>
      ${data.members.map(
        (each) => html`<a
          href=${linkTo(each)}
          class=${`member ${isRight(each) ? "right" : "wrong"} ${each.line === place.line ? "current" : ""}`}
          aria-current=${each.line === place.line ? "page" : undefined}
          title=${`sample ${each.sample}: ${isRight(each) ? "right" : "wrong"}, reward ${number(each.reward)}, ${each.calls} calls, ${each.tokens} tokens`}
          >${isRight(each) ? "✓" : "✗"}<small>${each.sample}</small></a
        >`,
      )}
      <a class="button" href=${link("group", [place.run, place.file, place.line])}>side by side</a>
      <a class="button" href=${link("problem", [], { id: problem.key, run: place.run })}>this problem over all steps</a>
    </nav>
    <${Audit} place=${place} calls=${sequence.calls} />
    ${data.branches.map((branch, index) => html`<details class="branch"><summary>another sequence of this episode (${index + 1})</summary><${Sequence} sequence=${branch} place=${null} /></details>`)}
    <${Sequence} sequence=${sequence} place=${place} prompt=${data.prompt} setStart=${setStart} />
    <footer class="dim source">
      <code>${data.location}</code>
      ${data.python && html`<code>${data.python}</code>`}
      ${data.test && html`<${CopyTest} text=${data.test} />`}
      ${!isExported && html`<${SaveLine} place=${place} label=${data.is_run ? "the line as it is in the file" : "the line in torl's format"} />`}
    </footer>
  </article>`;
}

function SaveLine({ place, label }) {
  const [error, setError] = useState(null);
  const click = () => save(`/api/row?${query(place)}`).then(() => setError(null), setError);
  return html`<button class="quiet" data-action="save-line" onClick=${click}>${label}</button>
    ${error && html`<${Failure} error=${error} />`}`;
}

// The trajectory as a test for pytest. Without a clipboard (no secure context), its text is shown.
function CopyTest({ text }) {
  const [state, setState] = useState("");
  const copy = () => (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => setState("copied"), () => setState("shown"));
  return html`<button class="quiet" data-action="copy-test" onClick=${copy}>${state === "copied" ? "copied" : "Copy as a test case"}</button>
    ${state === "shown" && html`<textarea readonly rows="12" class="test-source" aria-label="Test case" value=${text}></textarea>`}`;
}

function Facts({ data }) {
  const { facets, grade } = data;
  const parts = Object.entries(grade.parts);
  const versions = facets.versions;
  const rewards = Object.entries(data.environment_rewards);
  return html`<dl class="facts">
    <div><dt>reward</dt><dd>${number(facets.reward)}${parts.length > 1 && html` <small class="dim">${parts.map(([name, value]) => `${name} ${signed(value, 2)}`).join(", ")}</small>`}</dd></div>
    <div><dt>advantage</dt><dd>${facets.advantage === null ? html`<span class="dim">${data.is_run ? "outside the batch" : "–"}</span>` : signed(facets.advantage)}</dd></div>
    <div><dt>calls</dt><dd>${facets.calls}${facets.failed > 0 && html` <small class="wrong">${facets.failed} failed</small>`}</dd></div>
    ${facets.tokens > 0 &&
    html`<div><dt>tokens</dt><dd>${number(facets.tokens)} <small class="dim">after ${number(data.prompt.tokens)} of the prompt</small></dd></div>`}
    ${versions !== null && html`<div><dt>policy</dt><dd>${versions[0] === versions[1] ? `version ${versions[0]}` : `versions ${versions[0]} to ${versions[1]}`}</dd></div>`}
    <div><dt>end</dt><dd>${data.sequence.finish}</dd></div>
    ${data.format && html`<div><dt>format</dt><dd>${data.format}${grade.valid_format ? "" : html` <small class="wrong">invalid</small>`}</dd></div>`}
    <div><dt>time</dt><dd>${duration(data.seconds)}</dd></div>
    ${grade.failure && html`<div><dt>grader</dt><dd class="wrong">${grade.failure}</dd></div>`}
    ${grade.detail && html`<div><dt>found</dt><dd class="wrong">${visible(grade.detail)}</dd></div>`}
    ${grade.turn_rewards.length > 0 && html`<div><dt>turn rewards</dt><dd>${grade.turn_rewards.map((value) => number(value, 2)).join(", ")}</dd></div>`}
    ${rewards.length > 0 && html`<div><dt>environment</dt><dd>${rewards.map(([name, value]) => `${name} ${number(value)}`).join(", ")}</dd></div>`}
    ${data.program_answer !== null && data.program_answer !== undefined && html`<div><dt>program's answer</dt><dd><code>${visible(data.program_answer)}</code></dd></div>`}
  </dl>`;
}

// --- the audit -------------------------------------------------------------------------------------------

const CHECKS = {
  structure: "turns and observations follow each other",
  groups: "recorded once, with the question of its group",
  tokens: "turns, mask and observations from the tokens",
  versions: "policy versions",
  rewards: "graded again",
  advantages: "advantage computed again",
  updates: "the learner's numbers of tokens",
};

// Once a trajectory was verified, the next ones are verified when they are opened.
const verifies = signal(false);

function Audit({ place, calls }) {
  const [result, setResult] = useState(null);
  const ask = (body) => post("/api/verify", body).then((reply) => (reply.error ? { error: new Error(reply.error) } : reply)).catch((error) => ({ error }));
  const run = async () => {
    if (result?.isRunning) return;
    verifies.value = true;
    setResult({ isRunning: true });
    const reply = await ask(place);
    wrongTokens.value = new Set((reply.checks ?? []).flatMap((check) => check.tokens ?? []));
    setResult(reply);
  };
  const [whole, setWhole] = useState(null);
  const runWhole = async () => {
    setWhole({ isRunning: true });
    setWhole(await ask({ ...place, whole: true }));
  };
  onKey("v", "verify trajectories", run);
  useEffect(() => {
    if (verifies.value && !isExported) run();
  }, []);
  if (isExported) return null;
  return html`<section class="audit" aria-label="Audit">
    <button data-action="verify" onClick=${run} disabled=${result?.isRunning}>${result?.isRunning ? "verifying …" : "Verify"}</button>
    ${calls.filter((call) => call.ran).length > 1 && html`<button data-action="replay-all" onClick=${() => (allRuns.value += 1)}>Run all calls again</button>`}
    <button class="quiet" data-action="verify-step" onClick=${runWhole} disabled=${whole?.isRunning}>${whole?.isRunning ? "verifying …" : `Verify all of ${place.file}`}</button>
    ${!result && html`<span class="dim">recompute this trajectory from its tokens, as torl verify does</span>`}
    <${Checks} result=${result} />
    ${whole && html`<div class="whole"><span class="dim">${place.file}</span> <${Checks} result=${whole} hasCounts=${true} /></div>`}
  </section>`;
}

function Checks({ result, hasCounts = false }) {
  if (result?.error) return html`<span class="problem" role="alert">${result.error.message}</span>`;
  const checks = result?.checks ?? [];
  const isDone = (check) => check.compared > 0;
  const others = checks.filter((check) => !isDone(check));
  return html`${checks.filter(isDone).map((check) => html`<${CheckResult} check=${check} hasCounts=${hasCounts} />`)}
    ${others.length > 0 &&
    html`<details class="unchecked"><summary>not checked: ${others.map((check) => check.name).join(", ")}</summary>
      <ul>${others.map((check) => html`<li>${check.name}: <span class="dim">${visible(check.note || "nothing to compare")}</span></li>`)}</ul></details>`}`;
}

function CheckResult({ check, hasCounts }) {
  return html`<span class=${`check ${check.wrong ? "wrong" : "right"}`} role="status" title=${CHECKS[check.name]}>
    ${check.wrong ? "✗" : "✓"} ${check.name}${hasCounts ? ` ${check.compared - check.wrong} of ${check.compared}` : ""}
    ${check.examples.map((text) => html`<small>${visible(text)}</small>`)} ${check.note && html`<small class="dim">${visible(check.note)}</small>`}
  </span>`;
}

// --- the response ----------------------------------------------------------------------------------------

function Sequence({ sequence, place, prompt, setStart }) {
  const { tokens, segments, calls } = sequence;
  const color = tokens.texts ? tokens.colors.find((each) => each.name === coloring.value && !each.missing) : undefined;
  const last = tokens.start + tokens.ids.length;
  const isPart = tokens.start > 0 || last < tokens.total;
  return html`<section class="sequence">
    <div class="toolbar">
      <${ColorChoice} tokens=${tokens} />
      ${color && html`<${TokenNumbers} tokens=${tokens} place=${place} />`}
    </div>
    ${isPart &&
    html`<p class="dim">
      tokens ${tokens.start} to ${last} of ${number(tokens.total)}
      ${tokens.start > 0 && html` <button class="quiet" onClick=${() => setStart(0)}>from the beginning</button>`}
      ${last < tokens.total && html` <button class="quiet" onClick=${() => setStart(last)}>the next tokens</button>`}
    </p>`}
    ${prompt?.tokens > 0 &&
    html`<details class="segment prompt"><summary>prompt, ${number(prompt.tokens)} tokens</summary>
      ${prompt.text === null ? html`<p class="dim">its text is unknown without the tokenizer</p>` : html`<pre>${visible(prompt.text)}</pre>`}</details>`}
    ${segments.map((segment, index) => html`<${Segment} key=${index} segment=${segment} turn=${turnNumber(segments, index)} tokens=${tokens} color=${color} />
      ${place && segment.calls?.map((number) => html`<${Call} key=${`call ${number}`} call=${calls[number]} number=${number} place=${place} />`)}`)}
  </section>`;
}

export const turnNumber = (segments, index) => segments.slice(0, index + 1).filter((segment) => segment.kind === "turn").length;

const REASONS = { call: "calls a tool", stop: "ends", length: "cut at the limit" };

export function Segment({ segment, turn, tokens, color }) {
  const isTurn = segment.kind === "turn";
  const size = tokens.total > 0 ? `, ${count(segment.stop - segment.start, "token")}` : "";
  const isEmpty = color && segment.start >= tokens.start + tokens.ids.length;
  if (isEmpty) return null;
  return html`<div class=${`segment ${segment.kind}`}>
    <p class="segment-label">
      ${isTurn
        ? html`<b>model</b> <span class="dim">turn ${turn}${size}, ${REASONS[segment.reason] ?? segment.reason}</span>`
        : html`<b>${segment.messages.length ? "environment" : "result"}</b> <span class="dim">inserted${size}${size && " without loss"}</span>`}
    </p>
    <pre class=${color ? "as-tokens" : ""}>
${color
        ? html`<${Tokens} tokens=${tokens} color=${color} start=${segment.start} stop=${segment.stop} />`
        : isTurn
          ? segment.parts.map((part) => html`<${Part} part=${part} />`)
          : visible(segment.text)}</pre
    >
    ${color && isTurn && segment.parts.some((part) => part.kind === "invented") && html`<p><${Badge} kind="invented">${INVENTED}<//></p>`}
  </div>`;
}

function Part({ part }) {
  if (part.kind === "code") return html`<span class="code"><${Code} text=${part.text} /></span>`;
  if (part.kind === "invented") {
    return html`<span class="invented-part"><span class="invented-mark">${INVENTED}</span>${visible(part.text)}</span>`;
  }
  return html`<span class=${part.kind}>${visible(part.text)}</span>`;
}

function nextColor(tokens) {
  const names = ["text", ...(tokens.texts ? tokens.colors.filter((color) => !color.missing).map((color) => color.name) : [])];
  setColoring(names[(names.indexOf(coloring.value) + 1) % names.length]);
}

function moveToken(tokens, by) {
  const last = tokens.start + tokens.ids.length - 1;
  const next = chosenToken.value === null ? tokens.start : chosenToken.value + by;
  chosenToken.value = Math.min(last, Math.max(tokens.start, next));
  document.querySelector(".token.current")?.scrollIntoView({ block: "nearest" });
}
