// Requests to the server, and their answers in an exported file, which has no server.

import { signal, useEffect, useRef, useState } from "view/lib.js";

const recorded = readRecorded();
export const isExported = recorded !== null;
const answers = new Map(); // of the current page, for its export
const token = takeToken();

export const exportedAddress = recorded?.address || "#/";
export const states = signal(recorded?.states ?? []);
export const connection = signal(isExported ? "exported" : "connecting");

function readRecorded() {
  const element = document.getElementById("recorded");
  return element ? JSON.parse(element.textContent) : null;
}

function takeToken() {
  // The token leaves the address bar, so that a copied link does not contain it.
  const found = /[#&]token=([\w-]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", "#/");
  }
  return isExported ? null : sessionStorage.getItem("token");
}

function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

export function query(parameters) {
  const pairs = [];
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") pairs.push([name, String(each)]);
    }
  }
  return new URLSearchParams(pairs).toString();
}

async function answerOf(response) {
  if (response.ok) return response.json();
  const data = await response.json().catch(() => ({}));
  throw new Error(data.error ?? `the server answered with status ${response.status}`);
}

export async function get(path, options = {}) {
  if (isExported) {
    if (path in recorded.answers) return recorded.answers[path];
    throw new Error("This part is not in the exported file.");
  }
  const data = await answerOf(await fetch(path, { ...options, headers: headers() }));
  answers.set(path, data);
  return data;
}

export async function post(path, body) {
  if (isExported) throw new Error("An exported file cannot run code.");
  const request = { method: "POST", headers: headers({ "Content-Type": "application/json", "X-Torl-View": "1" }) };
  return answerOf(await fetch(path, { ...request, body: JSON.stringify(body) }));
}

export const forgetAnswers = () => answers.clear();
export const usedAnswers = () => Object.fromEntries(answers);

// Data of a path, loaded again when `revision` changes. Old data stays until the new data is there. Fixed data, or data
// for which the function `isFixed` is true, is loaded again only after an error, such as an index that was not complete.
export function useData(path, revision = "", { isFixed = false } = {}) {
  const [result, setResult] = useState({ data: null, error: null, path: null });
  const loadedAt = useRef(0);
  useEffect(() => {
    if (result.data && result.path === path && (typeof isFixed === "function" ? isFixed(result.data) : isFixed)) return undefined;
    const abort = new AbortController();
    const load = async () => {
      loadedAt.current = Date.now();
      try {
        const data = await get(path, { signal: abort.signal });
        setResult({ data, error: null, path });
      } catch (error) {
        if (error.name !== "AbortError") setResult((old) => ({ data: old.path === path ? old.data : null, error, path }));
      }
    };
    // A run that is written changes often: at most one request a second.
    const wait = result.path === path ? Math.max(0, 1000 - (Date.now() - loadedAt.current)) : 0;
    const timer = setTimeout(load, wait);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [path, revision]);
  return { ...result, isLoading: result.path !== path };
}

// Saves a file of the interface. A link would not send the token.
export async function save(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) return answerOf(response);
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition"));
  return saveBlob(await response.blob(), name);
}

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// Calls `receive` with each line of JSON of a streamed answer.
export async function streamLines(path, receive, abort) {
  const response = await fetch(path, { headers: headers(), signal: abort });
  if (!response.ok) return answerOf(response);
  return readLines(response, (line) => line && receive(JSON.parse(line)));
}

async function readLines(response, receive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach(receive);
  }
}

// Follows the states of all runs. An event source cannot send the token.
export async function follow() {
  if (isExported) return;
  for (;;) {
    try {
      const response = await fetch("/api/events", { headers: headers() });
      if (!response.ok) throw new Error(String(response.status));
      connection.value = "live";
      await readLines(response, (line) => {
        if (line.startsWith("data: ")) states.value = JSON.parse(line.slice(6));
      });
    } catch (error) {
      connection.value = error.message === "401" ? "refused" : "lost";
    }
    if (connection.value === "live") connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

export const revisionOf = (labels) =>
  states.value
    .filter((state) => !labels || labels.includes(state.run))
    .map((state) => `${state.run} ${state.revision}`)
    .join();

export const recordsRevision = () => JSON.stringify(states.value.map((state) => [state.revision, state.records]));
