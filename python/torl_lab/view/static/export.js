// The current page as one HTML file: the modules, the styles and the answers that the page has used.

import { saveBlob, states, usedAnswers } from "view/api.js";

const MODULES = "api app calls charts code compare diff export format keys lib list overview parts problem route theme tokens trajectory".split(" ");
const LIBRARIES = {
  preact: "preact.mjs",
  "preact/hooks": "preact-hooks.mjs",
  "@preact/signals": "preact-signals.mjs",
  "@preact/signals-core": "signals-core.mjs",
  htm: "htm.mjs",
};

const textOf = async (path) => (await fetch(path)).text();

// A text within a script element: "<" cannot end it, and JSON and modules keep their meaning.
const inScript = (text) => text.replaceAll("</", "<\\/").replaceAll("<!--", "<\\!--");

async function moduleUrl(path) {
  const bytes = new TextEncoder().encode(await textOf(path));
  let binary = "";
  for (let start = 0; start < bytes.length; start += 8192) binary += String.fromCharCode(...bytes.subarray(start, start + 8192));
  return `data:text/javascript;base64,${btoa(binary)}`;
}

export async function exportedPage() {
  const imports = {};
  for (const [name, file] of Object.entries(LIBRARIES)) imports[name] = await moduleUrl(`/static/vendor/${file}`);
  for (const name of MODULES) imports[`view/${name}.js`] = await moduleUrl(`/static/${name}.js`);
  const styles = (await textOf("/static/vendor/uPlot.min.css")) + (await textOf("/static/style.css"));
  const chart = await textOf("/static/vendor/uPlot.iife.min.js");
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  // Modules inherit the nonce of the script that imports them, so that no other script can run.
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
  const recorded = { states: states.value, answers: usedAnswers(), address: location.hash, time: new Date().toISOString() };
  const json = JSON.stringify(recorded).replaceAll("<", "\\u003c");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>torl view</title><link rel="icon" href="data:,"><style>${styles.replaceAll("</", "<\\/")}</style>
<script type="importmap" nonce="${nonce}">${JSON.stringify({ imports })}</script>
<script nonce="${nonce}">${inScript(chart)}</script></head>
<body><div id="page"></div>
<script type="application/json" id="recorded">${json}</script>
<script type="module" nonce="${nonce}">import "view/app.js";</script></body></html>
`;
}

export async function download() {
  const name = `torl${location.hash.replace(/[^\w.-]+/g, "-").slice(0, 80)}.html`;
  saveBlob(new Blob([await exportedPage()], { type: "text/html" }), name);
}
