// Light and dark: that of the system, unless the visitor has chosen one.

import { computed, effect, signal } from "view/lib.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const system = signal(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => (system.value = dark.matches ? "dark" : "light"));

export const chosen = signal(read());
export const theme = computed(() => (chosen.value === "auto" ? system.value : chosen.value));

function read() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto"; // a file may have no storage
  }
}

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem("theme", chosen.value);
  } catch {
    // as above
  }
});

export function nextTheme() {
  chosen.value = { auto: "light", light: "dark", dark: "auto" }[chosen.value];
}
