// The frame of the page: navigation, keys, and the view of the current address.

import { html, render, signal, useEffect, useErrorBoundary } from "view/lib.js";
import { connection, follow, isExported, states } from "view/api.js";
import { Compare, Group } from "view/compare.js";
import { download } from "view/export.js";
import { keyLabels, onKey } from "view/keys.js";
import { Trajectories } from "view/list.js";
import { Overview } from "view/overview.js";
import { Failure } from "view/parts.js";
import { Problem } from "view/problem.js";
import { go, link, route } from "view/route.js";
import { chosen, nextTheme } from "view/theme.js";
import { Trajectory } from "view/trajectory.js";

const VIEWS = { overview: Overview, trajectories: Trajectories, trajectory: Trajectory, group: Group, compare: Compare, problem: Problem };
const CONNECTIONS = {
  connecting: "connecting",
  live: "live",
  lost: "the server does not answer",
  refused: "the token is missing: open the address that torl view printed",
  exported: "exported file",
};
const helpShown = signal(false);

function App() {
  const { name, parts, parameters } = route.value;
  const View = VIEWS[name];
  onKey("o", "overview", () => go(link("overview")));
  onKey("t", "trajectories", () => go(link("trajectories")));
  onKey("d", "light, dark or as the system", nextTheme);
  onKey("e", "export this page as one file", () => !isExported && download());
  onKey("?", "keys", () => (helpShown.value = !helpShown.value));
  onKey("Escape", "close", () => (helpShown.value = false));
  useEffect(() => {
    document.title = `${name === "overview" ? "" : `${name} · `}${states.value.map((state) => state.run).join(", ") || "torl"} · torl view`;
  }, [name, states.value.length]);
  return html`
    <header class="top">
      <a class="brand" href=${link("overview")}>torl <span>view</span></a>
      <nav aria-label="Views">
        <a href=${link("overview")} aria-current=${name === "overview" ? "page" : undefined}>Overview</a>
        <a href=${link("trajectories")} aria-current=${name === "trajectories" ? "page" : undefined}>Trajectories</a>
      </nav>
      <span class=${`connection ${connection.value}`} role="status" title=${CONNECTIONS[connection.value]}
        ><i class="live-dot"></i><span class="label">${CONNECTIONS[connection.value]}</span></span
      >
      <span class="tools">
        ${!isExported && html`<button class="quiet" data-action="export" title="export this page as one file (e)" aria-label="Export" onClick=${download}><span class="icon" aria-hidden="true">⤓</span><span class="label">Export</span></button>`}
        <button class="quiet" title="light, dark or as the system (d)" aria-label=${`Colors: ${chosen.value}`} onClick=${nextTheme}><span class="icon" aria-hidden="true">${{ auto: "◐", light: "○", dark: "●" }[chosen.value]}</span><span class="label">${{ auto: "Auto", light: "Light", dark: "Dark" }[chosen.value]}</span></button>
        <button class="quiet" title="keys (?)" aria-expanded=${helpShown.value} onClick=${() => (helpShown.value = !helpShown.value)}>?</button>
      </span>
    </header>
    ${helpShown.value && html`<${Help} />`}
    <main>${View ? html`<${Guarded} key=${name} view=${View} parts=${parts} parameters=${parameters} />` : html`<p class="problem">There is no view ${name}.</p>`}</main>
  `;
}

// A record that a view does not expect must not leave an empty page.
function Guarded({ view: View, parts, parameters }) {
  const [error, reset] = useErrorBoundary((caught) => console.warn(caught));
  useEffect(() => error && reset(), [parts.join(), String(parameters)]);
  if (error) return html`<${Failure} error=${new Error(`this page cannot be shown: ${error.message}`)} />`;
  return html`<${View} parts=${parts} parameters=${parameters} />`;
}

function Help() {
  return html`<div class="help card" role="dialog" aria-label="Keys">
    <h2>Keys</h2>
    <dl>
      ${keyLabels.value.map(([key, label]) => html`<div><dt><kbd>${{ ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" }[key] ?? key}</kbd></dt><dd>${label}</dd></div>`)}
    </dl>
    <button class="quiet" onClick=${() => (helpShown.value = false)}>close</button>
  </div>`;
}

document.getElementById("page").replaceChildren();
render(html`<${App} />`, document.getElementById("page"));
follow();
