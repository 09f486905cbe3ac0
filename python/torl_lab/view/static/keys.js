// Keys of the current view. A view registers its keys while it is shown; "?" lists them.

import { signal, useLayoutEffect, useRef } from "view/lib.js";
import { isEditing } from "view/parts.js";

const registered = new Map(); // key -> [{label, run}]
export const keyLabels = signal([]);

export function onKey(key, label, run, { isGlobal = true } = {}) {
  const current = useRef(run);
  current.current = run;
  useLayoutEffect(() => {
    const entry = { label, isGlobal, run: () => current.current() };
    registered.set(key, [entry, ...(registered.get(key) ?? [])]);
    refresh();
    return () => {
      registered.set(key, registered.get(key).filter((each) => each !== entry));
      refresh();
    };
  }, [key, label]);
}

function refresh() {
  const found = [...registered].filter(([, entries]) => entries.length);
  keyLabels.value = found.map(([key, entries]) => [key, entries[0].label]);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isEditing(event)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const entry = registered.get(event.key)?.[0];
  if (!entry) return;
  // Keys of the browser for links and buttons keep their meaning on them.
  if (!entry.isGlobal && /^(A|BUTTON|SUMMARY)$/.test(event.target.tagName)) return;
  event.preventDefault();
  entry.run();
});
