// Small parts that several views share.

import { html } from "view/lib.js";
import { number, signed } from "view/format.js";

export const Loading = () => html`<p class="dim loading" role="status">loading …</p>`;

export const Failure = ({ error }) => html`<p class="problem" role="alert">${error.message}</p>`;

export const isRight = (facets) => facets.flags.includes("correct");

export function Verdict({ facets, long = false }) {
  if (facets.flags.includes("damaged")) return html`<span class="verdict wrong" title="not a trajectory">⚠${long && " damaged"}</span>`;
  const right = isRight(facets);
  return html`<span class=${`verdict ${right ? "right" : "wrong"}`} title=${right ? "right" : "wrong"}>
    <span aria-hidden="true">${right ? "✓" : "✗"}</span>
    ${long ? (right ? " right" : " wrong") : html`<span class="unseen">${right ? "right" : "wrong"}</span>`}
  </span>`;
}

export function Badge({ kind = "", title, children }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;
}

export const INVENTED = "written by the model, not run";

const FLAG_BADGES = {
  invented: ["invented", INVENTED],
  recovered: ["right", "recovered from an error"],
  grader_failure: ["wrong", "the grader failed"],
  branches: ["", "several sequences"],
  damaged: ["wrong", "damaged line"],
};
const FINISH_BADGES = { length: ["wrong", "cut at the token limit"], void: ["", "void turn"], turns: ["", "turn limit"] };

export function FlagBadges({ facets }) {
  const found = [...facets.flags.map((flag) => FLAG_BADGES[flag]), FINISH_BADGES[facets.finish]].filter(Boolean);
  return found.map(([kind, text]) => html`<${Badge} kind=${kind}>${text}<//>`);
}

export function Advantage({ value, largest = 2 }) {
  if (value === null) return html`<span class="advantage dim" title="outside the batch">–</span>`;
  const width = `${Math.min(1, Math.abs(value) / largest) * 50}%`;
  return html`<span class="advantage" title=${`advantage ${number(value, 4)}`}>
    <span class="bar ${value < 0 ? "negative" : "positive"}" style=${{ width }}></span>
    <span class="digits">${signed(value, 2)}</span>
  </span>`;
}

export const STATUS_LABELS = {
  ok: "ok",
  error: "error",
  timeout: "timeout",
  memory: "memory",
  output_limit: "output limit",
  crash: "crash",
  not_executed: "not executed",
};

export const isEditing = (event) => /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
