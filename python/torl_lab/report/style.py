"""The style sheet of a report, the script that adapts the colors of charts, and tables."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f7f8fa; --ink: #1c2430; --dim: #667085; --line: #e2e6ec;
  --accent: #2563eb; --code: #d3e2ff; --observation: #ffe3ac; --right: #0f8a5f; --wrong: #c73a3a; --answer: #b4eccf;
  --invented: #ffd3d3; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161c; --card: #1a2029; --ink: #e4e8ee; --dim: #93a0b2;
  --line: #2b3442; --accent: #7aa7ff; --code: #213a68; --observation: #4d3b10; --right: #4cc38a; --wrong: #f07a7a;
  --answer: #175a3d; --invented: #5c2529; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 28px 20px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 12px; }
h3 { font-size: 15px; margin: 0 0 6px; } h4 { font-size: 13px; margin: 0 0 6px; font-weight: 600; }
.dim, .note { color: var(--dim); } .dim { font-weight: 400; }
.statement { border-left: 4px solid var(--accent); background: var(--card); padding: 12px 16px; margin: 18px 0;
  border-radius: 0 8px 8px 0; } .statement p { margin: 0 0 8px; } .statement p:last-child { margin: 0; }
.chart, .example { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px; }
.chart { padding: 12px 14px 4px; min-width: 0; overflow: hidden; }
.chart p { margin: 0 0 4px; color: var(--dim); font-size: 13px; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 12px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th { color: var(--dim); font-weight: 600; font-size: 13px; }
.example { padding: 14px 16px; margin: 0 0 14px; } .question { margin: 0 0 4px; white-space: pre-wrap; }
.reference { margin: 0 0 10px; font-size: 13px; } .pair { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); } .response { min-width: 0; }
pre { margin: 0; padding: 10px 12px; background: var(--paper); border: 1px solid var(--line); border-radius: 8px;
  overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font: 12.5px/1.5 ui-monospace, Menlo, Consolas,
  monospace; max-height: 560px; overflow-y: auto; }
pre span { border-radius: 3px; } .code { background: var(--code); } .observation { background: var(--observation); }
.answer { background: var(--answer); font-weight: 700; } .invented { background: var(--invented); }
.invented .badge { display: block; width: fit-content; margin: 2px 0; background: var(--paper); }
.badge { display: inline-block; font-size: 11.5px; font-weight: 600; padding: 0 8px; border-radius: 99px;
  border: 1px solid var(--line); color: var(--dim); } .badge.right { color: var(--right); border-color: currentColor; }
.badge.wrong { color: var(--wrong); border-color: currentColor; }
.better { color: var(--right); } .worse { color: var(--wrong); }
details summary { cursor: pointer; color: var(--accent); } .key span { padding: 1px 6px; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.92em; }
"""

SCRIPT = """
(function () {
  function paint() {
    var style = getComputedStyle(document.documentElement);
    var ink = style.getPropertyValue("--ink").trim(), card = style.getPropertyValue("--card").trim();
    document.querySelectorAll(".plotly-graph-div").forEach(function (chart) {
      Plotly.Plots.resize(chart);  // the first is drawn before the grid has columns
      Plotly.relayout(chart, {"font.color": ink, "hoverlabel.bgcolor": card, "hoverlabel.font.color": ink});
    });
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
"""


def table_html(head: Sequence[str], rows: Iterable[Iterable[str]], note: str = "") -> str:
    """Return a table of escaped texts, with a note below it."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<div class="table"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>{below}'
