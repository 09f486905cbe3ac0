// The difference of two texts by lines.

import { html } from "view/lib.js";
import { visible } from "view/format.js";

const MAX_LINES = 400;

export function differenceOf(before, now) {
  const a = before.split("\n");
  const b = now.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...same(end ? a.slice(-end) : []),
  ];
}

// The longest common subsequence of short texts; long texts are replaced as a whole.
function middle(a, b) {
  const removed = a.map((text) => ({ kind: "removed", text }));
  const added = b.map((text) => ({ kind: "added", text }));
  if (a.length > MAX_LINES || b.length > MAX_LINES) return [...removed, ...added];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
      lines.push(removed[i]);
      i += 1;
    } else {
      lines.push(added[j]);
      j += 1;
    }
  }
  return lines;
}

const SIGNS = { same: " ", removed: "−", added: "+" };

export function Difference({ before, now }) {
  const lines = differenceOf(String(before ?? ""), String(now ?? ""));
  return html`<pre class="diff">
${lines.map((line) => html`<div class=${line.kind}><span class="sign">${SIGNS[line.kind]}</span>${visible(line.text)}</div>`)}</pre
  >`;
}
