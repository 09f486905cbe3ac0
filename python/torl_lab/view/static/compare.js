// Responses side by side, from the first token in which they differ, and the tree of their common prefixes.

import { html, useMemo, useState } from "view/lib.js";
import { query, revisionOf, useData } from "view/api.js";
import { count, number, signed, visible } from "view/format.js";
import { onKey } from "view/keys.js";
import { Failure, FlagBadges, isRight, Loading, Verdict } from "view/parts.js";
import { go, link, linkTo } from "view/route.js";

export function Group({ parts }) {
  const [run, file, line] = parts;
  return html`<${Comparison} path=${`/api/compare?${query({ run, file, line })}`} back=${linkTo({ run, file, line })} title="Group" />`;
}

export function Compare({ parameters }) {
  return html`<${Comparison} path=${`/api/compare?${query({ at: parameters.getAll("at") })}`} title="Side by side" />`;
}

function Comparison({ path, back, title }) {
  const { data, error } = useData(path, revisionOf(null), { isFixed: true });
  const [hidden, hide] = useState(new Set());
  onKey("u", "back to the trajectory", () => back && go(back));
  const order = useMemo(() => (data ? treeOrder(data.nodes, data.members.length) : []), [data]);
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  const right = data.members.filter(isRight).length;
  const root = data.nodes[0];
  const toggle = (index) => {
    const next = new Set(hidden);
    if (!next.delete(index)) next.add(index);
    hide(next);
  };
  const shared = root.stop - root.start;
  return html`<article class="comparison">
    <nav class="crumbs" aria-label="Position">${back && html`<a href=${back}>← trajectory</a>`}<span class="dim">${title} of ${data.members.length}, ${right} right</span></nav>
    <header class="card problem-card">
      <p class="question">${visible(data.question)}</p>
      <p class="answers"><span>reference <code>${visible(data.answer)}</code></span></p>
    </header>
    <section class="card tree" aria-label="Common prefixes">
      <h3>Where they part <span class="dim">by ${data.unit}s; right / members</span></h3>
      <${Node} data=${data} index=${0} depth=${0} />
    </section>
    <p class="dim">
      ${shared > 0 ? html`All begin with the same ${count(shared, data.unit)}:` : `They differ from the first ${data.unit} on.`}
    </p>
    ${shared > 0 && html`<pre class="card shared"><${Runs} node=${root} /></pre>`}
    ${data.members.length > 2 &&
    html`<p class="members" aria-label="Shown members">
      ${order.map(
        (index) => html`<button class=${`member ${isRight(data.members[index]) ? "right" : "wrong"} ${hidden.has(index) ? "off" : "current"}`} aria-pressed=${!hidden.has(index)} onClick=${() => toggle(index)}>
          ${isRight(data.members[index]) ? "✓" : "✗"}<small>${data.members[index].sample}</small>
        </button>`,
      )}
      <span class="dim">shown columns</span>
    </p>`}
    <div class="columns">
      ${order
        .filter((index) => !hidden.has(index))
        .map((index) => html`<${Column} key=${index} data=${data} index=${index} />`)}
    </div>
  </article>`;
}

// Members in the order of the tree, so that those with a long common prefix are neighbors.
function treeOrder(nodes, total) {
  const children = nodes.map((_, parent) => nodes.flatMap((node, index) => (node.parent === parent ? [index] : [])));
  const order = [];
  const visit = (index) => {
    const below = new Set(children[index].flatMap((child) => nodes[child].members));
    order.push(...nodes[index].members.filter((member) => !below.has(member)));
    children[index].forEach(visit);
  };
  visit(0);
  return order.length === total ? order : [...Array(total).keys()];
}

function Node({ data, index, depth }) {
  const node = data.nodes[index];
  const children = data.nodes.flatMap((each, child) => (each.parent === index ? [child] : []));
  const right = node.members.filter((member) => isRight(data.members[member])).length;
  const text = node.runs.map((run) => run.text).join("");
  const isShared = node.members.length > 1;
  const label = visible(text.replace(/\s+/g, " ").trim()).slice(0, 160) || (node.stop > node.start ? "(blank)" : index === 0 ? "start" : "(end)");
  return html`<div class="node" style=${{ marginLeft: depth ? "14px" : 0 }}>
    <p class=${isShared ? "" : "leaf"}>
      <span class=${`ratio ${right === node.members.length ? "right" : right ? "mixed" : "wrong"}`}>${right}/${node.members.length}</span>
      <code>${label}</code>
      ${!isShared && html`<a href=${linkTo(data.members[node.members[0]])}>sample ${data.members[node.members[0]].sample}</a>`}
    </p>
    ${children.map((child) => html`<${Node} key=${child} data=${data} index=${child} depth=${depth + 1} />`)}
  </div>`;
}

function Column({ data, index }) {
  const member = data.members[index];
  const path = data.nodes.map((node, at) => ({ ...node, at })).filter((node) => node.at > 0 && node.members.includes(index));
  return html`<section class="card column" aria-label=${`sample ${member.sample}`}>
    <header>
      <${Verdict} facets=${member} long=${true} />
      <a href=${linkTo(member)}>${member.file.startsWith("step") ? "" : `${member.set} `}step ${member.step}, sample ${member.sample}</a>
      <p class="dim">
        answer <code>${member.answer === null ? "none" : visible(member.answer)}</code>, reward ${number(member.reward, 2)}, advantage
        ${member.advantage === null ? " –" : ` ${signed(member.advantage, 2)}`}, ${count(member.calls, "call")}, ${number(member.tokens)} tokens
      </p>
      <p><${FlagBadges} facets=${member} /></p>
    </header>
    ${path.length === 0 && html`<p class="dim">ends here</p>`}
    ${path.map(
      (node) => html`<div class=${node.members.length > 1 ? "piece common" : "piece"}>
        ${node.members.length > 1 && html`<p class="dim share-label">shared by ${node.members.length} of ${data.members.length}</p>`}
        <pre><${Runs} node=${node} marksFirst=${true} unit=${data.unit} /></pre>
      </div>`,
    )}
  </section>`;
}

function Runs({ node, marksFirst, unit }) {
  return node.runs.map((run, position) => {
    const kind = run.sampled ? "sampled" : "observed";
    if (!marksFirst || position > 0) return html`<span class=${kind}>${visible(run.text)}</span>`;
    const first = run.text.startsWith(node.first) ? node.first : run.text.slice(0, 1);
    return html`<span class=${kind}><mark title=${`the first ${unit} that differs`}>${visible(first)}</mark>${visible(run.text.slice(first.length))}</span>`;
  });
}

export const compareLink = (places) => link("compare", [], { at: places.map((place) => `${place.run}:${place.file}:${place.line}`) });
