// Tokens of a segment with a color for each, and the numbers of one token.

import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "view/lib.js";
import { get, isExported, query } from "view/api.js";
import { number, tokenText, visible } from "view/format.js";
import { linkTo } from "view/route.js";

const LEVELS = 10;
const CATEGORIES = 6;

export const coloring = signal(read());
export const chosenToken = signal(null); // index in the response
export const wrongTokens = signal(new Set()); // at which the audit disagrees with the record

function read() {
  try {
    return localStorage.getItem("coloring") ?? "text";
  } catch {
    return "text";
  }
}

export function setColoring(name) {
  coloring.value = name;
  try {
    localStorage.setItem("coloring", name);
  } catch {
    // an exported file may have no storage
  }
}

// The class of a token: the scale, and one of its levels.
export function colorClass(color, value) {
  if (value === null || value === undefined) return "";
  if (color.scale === "category") return `category c${((Math.round(value) % CATEGORIES) + CATEGORIES) % CATEGORIES}`;
  const level = (share) => `q${Math.round(LEVELS * Math.min(1, Math.max(0, share)))}`;
  if (color.scale === "down") return `scale down ${level(-value / 5)}`;
  const [low, high] = color.range ?? [0, 0];
  if (color.scale === "up") return `scale up ${level(high > 0 ? value / high : 0)}`;
  const reach = Math.max(Math.abs(low - color.center), Math.abs(high - color.center), 1e-9);
  const distance = value - color.center;
  return `scale ${distance < 0 ? "below" : "above"} ${level(Math.abs(distance) / reach)}`;
}

// The tokens from `start` to `stop` of a response. Elements are made directly: a response may have thousands.
export function Tokens({ tokens, color, start, stop }) {
  const target = useRef(null);
  const from = Math.max(start, tokens.start);
  const to = Math.min(stop, tokens.start + tokens.ids.length);

  useLayoutEffect(() => {
    const fragment = document.createDocumentFragment();
    for (let index = from; index < to; index += 1) {
      const element = document.createElement("span");
      element.textContent = tokenText(tokens.texts[index - tokens.start]);
      element.dataset.token = index;
      fragment.append(element);
    }
    target.current.replaceChildren(fragment);
  }, [tokens, from, to]);

  useLayoutEffect(() => {
    for (const element of target.current.children) {
      const value = color?.values?.[Number(element.dataset.token) - tokens.start];
      element.className = `token ${color ? colorClass(color, value) : ""}`;
    }
  }, [tokens, color, from, to]);

  useEffect(() => {
    const show = () => {
      target.current?.querySelector(".current")?.classList.remove("current");
      if (chosenToken.value !== null) {
        target.current?.querySelector(`[data-token="${chosenToken.value}"]`)?.classList.add("current");
      }
    };
    return chosenToken.subscribe(show);
  }, [tokens, from, to]);

  useEffect(
    () =>
      wrongTokens.subscribe((wrong) => {
        for (const element of target.current?.children ?? []) {
          element.classList.toggle("disagrees", wrong.has(Number(element.dataset.token)));
        }
      }),
    [tokens, color, from, to],
  );

  const choose = (event) => {
    const index = event.target.dataset?.token;
    if (index !== undefined) chosenToken.value = Number(index);
  };
  return html`<span class="tokens" ref=${target} onMouseOver=${choose} onClick=${choose}></span>`;
}

// The same token in the other members of the group, once the pointer rests on it.
function Neighbors({ place, index }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    setFound(null);
    let isCurrent = true;
    const timer = setTimeout(
      () =>
        get(`/api/token?${query({ ...place, index })}`)
          .then((reply) => isCurrent && setFound(reply))
          .catch(() => {}),
      150,
    );
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [index]);
  if (!found || found.members.length + found.parted === 0) return html`<div class="neighbors"></div>`;
  const choices = new Map();
  for (const member of found.members) choices.set(member.id, [...(choices.get(member.id) ?? []), member]);
  return html`<div class="neighbors">
    <dt>the same token in the group</dt>
    <dd>
      ${[...choices.values()].map(
        (members) => html`<span><code>${JSON.stringify(visible(members[0].text ?? `id ${members[0].id}`))}</code>
          ${members[0].numbers.rollout_logprobs !== undefined && html` <span class="dim">p ${number(Math.exp(members[0].numbers.rollout_logprobs), 3)}</span>`}
          ${members.map((member) => html` <a href=${linkTo(member)}>sample ${member.sample}</a>`)}</span>`,
      )}
      ${found.parted > 0 && html`<span class="dim">${found.parted} differ earlier or have ended</span>`}
    </dd>
  </div>`;
}

export function TokenNumbers({ tokens, place }) {
  const index = chosenToken.value;
  if (index === null || index < tokens.start || index >= tokens.start + tokens.ids.length) {
    return html`<p class="dim hint">Point at a token, or use ← and →, for its numbers.</p>`;
  }
  const at = index - tokens.start;
  const numbers = tokens.colors.filter((color) => color.values && color.values[at] !== null);
  const logprob = numbers.find((color) => color.name === "rollout_logprob");
  return html`<dl class="token-numbers">
    <div><dt>token ${index}</dt><dd><code>${JSON.stringify(visible(tokens.texts?.[at] ?? ""))}</code> <span class="dim">id ${tokens.ids[at]}</span></dd></div>
    ${logprob && html`<div><dt>probability</dt><dd>${number(Math.exp(logprob.values[at]), 4)}</dd></div>`}
    ${numbers.map((color) => html`<div><dt>${color.label}</dt><dd>${describe(color, color.values[at])}</dd></div>`)}
    ${wrongTokens.value.has(index) && html`<div><dt>audit</dt><dd class="wrong">disagrees with the record</dd></div>`}
    ${place && !isExported && html`<${Neighbors} place=${place} index=${index} />`}
  </dl>`;
}

function describe(color, value) {
  if (color.name === "mask") return value ? "sampled, in the loss" : "observed, not in the loss";
  if (color.name === "clipped") return value ? "yes" : "no";
  return color.scale === "category" ? String(value) : number(value, 4);
}

// The choice of a color, its scale, and the colors that the record lacks.
export function ColorChoice({ tokens }) {
  const available = tokens.texts ? tokens.colors.filter((color) => !color.missing) : [];
  const missing = tokens.colors.filter((color) => color.missing);
  const current = available.find((color) => color.name === coloring.value);
  return html`<div class="coloring">
    ${available.length > 0 && html`<div class="segmented" role="radiogroup" aria-label="Color of tokens">
      ${[{ name: "text", label: "text" }, ...available].map(
        (color) => html`<button
          role="radio"
          aria-checked=${(current?.name ?? "text") === color.name}
          class=${(current?.name ?? "text") === color.name ? "on" : ""}
          onClick=${() => setColoring(color.name)}
        >
          ${color.label}
        </button>`,
      )}
    </div>`}
    ${current && html`<${Legend} color=${current} />`}
    ${!tokens.texts && html`<p class="dim hint">Tokens cannot be shown: ${tokens.total ? "the tokenizer of the model is not on this machine (--tokenizer)" : "the record has no token ids"}.</p>`}
    ${missing.length > 0 && tokens.total > 0 &&
    html`<details class="missing"><summary>${missing.length} not recorded</summary>
      <ul>${missing.map((color) => html`<li>${color.label}: <span class="dim">${color.missing}</span></li>`)}</ul></details>`}
  </div>`;
}

function Legend({ color }) {
  const values = {
    down: [0, -1, -2, -3, -4, -5],
    up: color.range ? [0, 0.25, 0.5, 0.75, 1].map((share) => share * color.range[1]) : [],
    around: color.range ? [-1, -0.5, 0, 0.5, 1].map((share) => color.center + share * reach(color)) : [],
  }[color.scale];
  if (color.scale === "category") {
    const found = [...new Set(color.values.filter((value) => value !== null))].sort((a, b) => a - b).slice(0, 8);
    return html`<p class="legend-scale">${found.map((value) => html`<span class=${`token ${colorClass(color, value)}`}>${describe(color, value)}</span>`)}</p>`;
  }
  return html`<p class="legend-scale">${values.map((value) => html`<span class=${`token ${colorClass(color, value)}`}>${number(value, 2)}</span>`)}</p>`;
}

const reach = (color) => Math.max(Math.abs(color.range[0] - color.center), Math.abs(color.range[1] - color.center), 1e-9);
