// Python with its comments, strings, numbers and keywords marked. Any text is shown completely.

import { html } from "view/lib.js";
import { visible } from "view/format.js";

const KEYWORDS = new Set(
  ("and as assert async await break class continue def del elif else except finally for from global if import in is " +
    "lambda nonlocal not or pass raise return try while with yield True False None").split(" "),
);
const TOKEN =
  /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(\b\d[\w.]*)|([^\W\d]\w*)/gu;
const MAX_MARKED = 20000; // characters

export function Code({ text }) {
  if (text.length > MAX_MARKED) return visible(text);
  const parts = [];
  let position = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [whole, comment, string, numeral, name] = found;
    const kind = comment ? "comment" : string ? "string" : numeral ? "numeral" : KEYWORDS.has(name) ? "keyword" : "";
    if (!kind) continue;
    parts.push(visible(text.slice(position, found.index)));
    parts.push(html`<span class=${`py-${kind}`}>${visible(whole)}</span>`);
    position = found.index + whole.length;
  }
  parts.push(visible(text.slice(position)));
  return parts;
}
