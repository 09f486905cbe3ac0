// The address of a page: a path and parameters in the fragment, so that a link also works in an exported file.

import { computed, signal } from "view/lib.js";
import { exportedAddress, forgetAnswers, isExported, query } from "view/api.js";

if (isExported && !location.hash) history.replaceState(null, "", exportedAddress);
const fragment = signal(location.hash);

addEventListener("hashchange", () => {
  const before = route.value.path;
  fragment.value = location.hash;
  if (route.value.path !== before) {
    forgetAnswers();
    scrollTo(0, 0);
  }
});

export const route = computed(() => {
  const [path, search = ""] = fragment.value.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { path, name: parts[0] ?? "overview", parts: parts.slice(1), parameters: new URLSearchParams(search) };
});

export function link(name, parts = [], parameters = {}) {
  const search = query(parameters);
  const path = [name, ...parts].map((part) => encodeURIComponent(part)).join("/");
  return `#/${path}${search ? `?${search}` : ""}`;
}

export const linkTo = (place) => link("trajectory", [place.run, place.file, place.line]);

export function go(address) {
  location.hash = address;
}

// All parameters by name; a list for those that occur several times.
export function parametersOf(search) {
  const found = {};
  for (const name of new Set(search.keys())) {
    const values = search.getAll(name);
    found[name] = values.length > 1 ? values : values[0];
  }
  return found;
}

export const listOf = (value) => (value === undefined ? [] : Array.isArray(value) ? value : [value]);
