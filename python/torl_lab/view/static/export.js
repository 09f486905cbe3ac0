// The current page as one HTML file: the server's file of the viewer, with the answers that the page has used.

import { saveBlob, states, usedAnswers } from "view/api.js";

export async function exportedPage() {
  const recorded = { states: states.value, answers: usedAnswers(), address: location.hash };
  const json = JSON.stringify(recorded).replaceAll("<", "\\u003c");
  const page = await (await fetch("/saved")).text();
  return page.replace('id="recorded">null<', () => `id="recorded">${json}<`);
}

export async function download() {
  const name = `torl${location.hash.replace(/[^\w.-]+/g, "-").slice(0, 80)}.html`;
  saveBlob(new Blob([await exportedPage()], { type: "text/html" }), name);
}
