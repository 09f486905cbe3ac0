"""The report of a run: one HTML file that is made from the run directory alone and works offline."""

import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError, RecordError
from torl.base.options import parse_toml, read_text
from torl.run.display.changes import AccuracyChange, accuracy_changes
from torl.run.display.outcome import outcome_of
from torl.run.display.series import Row, evaluation_sets, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import CONFIG_FILE, REPORT_FILE, atomic_write
from torl.run.records.reading import read_metrics
from torl_lab.report.curves import charts_html
from torl_lab.report.examples import choose_examples, examples_html
from torl_lab.report.style import SCRIPT, STYLE
from torl_lab.view.panels import RunRecords, panels_of_run

PLOTLY: Final = Path(__file__).parent / "vendor" / "plotly-basic.min.js"
"""The part of plotly.js that draws lines, areas and bars."""
RELOAD_SECONDS: Final = 30
"""Interval at which the open page of a running run is loaded again."""
_WINDOW: Final = 5
"""Number of steps that training curves are averaged over, in runs of at least four times as many."""
_TABLE: Final = (
    *(names.ACCURACY, names.GREEDY_ACCURACY, names.CODE_RATIO, names.GREEDY_CODE_RATIO),
    *(names.PASS_RATIO, names.PASS_RATIO_CORRECT, names.PASS_RATIO_INCORRECT),
    *(names.CODE_BLOCKS_PER_RESPONSE, names.EXECUTED_RATIO, names.BEFORE_ANSWER_RATIO),
    *(names.ANSWERED, names.TRUNCATED, names.RESPONSE_TOKENS),
)
# The page contains model output and must not load anything.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def write_report(run_directory: Path, statement: str | None = None) -> Path:
    """Write `report.html` into a run directory from its records, and return the file.

    It contains curves, a table of the first and the last evaluation, sample trajectories and the configuration, without
    the parts that have no records.

    Args:
        run_directory: Directory of a run, finished or running.
        statement: Conclusions from the run. Empty lines separate paragraphs.

    Raises:
        RecordError: The records are missing or damaged, or the report cannot be written.
    """
    rows = read_metrics(run_directory)
    config_text, config = read_config(run_directory)
    changes = accuracy_changes(run_directory)
    run = RunRecords(run_directory.resolve().name, rows, config)
    window = _WINDOW if len(values_of(rows, names.TIME_STEP)[0]) >= 4 * _WINDOW else 1
    charts = charts_html(panels_of_run(run), [run], window)
    waiting = missing_steps(rows, config) > 0
    title = f"torl: {run.label}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(_subtitle(rows, config))}</p>',
        _statement(statement),
        _outcome(outcome_of(rows, changes)),
        _before_and_after(rows, changes),
        f"<h2>Curves</h2>{charts}" if charts else "",
        _examples(run_directory),
        f"<h2>Configuration</h2><details><summary>the resolved configuration</summary><pre>{escape(config_text)}</pre>"
        "</details>",
    ]
    page = document(title, "\n".join(part for part in parts if part), reload_seconds=RELOAD_SECONDS if waiting else 0)
    path = run_directory / REPORT_FILE
    with atomic_write(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
    return path


def document(title: str, body: str, *, reload_seconds: int = 0) -> str:
    """Return an HTML document with plotly.js and the style of a report, which loads nothing.

    Args:
        title: Title.
        body: HTML of the body.
        reload_seconds: Interval at which an open page is loaded again, for a file that is written again; 0 never.
    """
    reload = f'<meta http-equiv="refresh" content="{reload_seconds}">' if reload_seconds else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{reload}'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<script>{PLOTLY.read_text(encoding='utf-8')}</script></head>\n<body>\n"
        f"{body}\n<script>{SCRIPT}</script></body></html>\n"
    )


def read_config(run_directory: Path) -> tuple[str, dict[str, Any]]:
    """Read the resolved configuration of a run, as TOML and as a tree.

    Raises:
        RecordError: The configuration cannot be read, or is damaged.
    """
    path = run_directory / CONFIG_FILE
    try:
        text = read_text(path)
        return text, parse_toml(path, text)
    except ConfigError as error:
        raise RecordError(str(error)) from error


def _subtitle(rows: Sequence[Row], config: Mapping[str, Any]) -> str:
    estimator = config.get("algorithm", {}).get("estimator", {}).get("name", "")
    method = "fine-tuning" if "finetune" in config else str(estimator)
    pieces = [str(config.get("model", {}).get("path", "")), method]
    steps, _ = values_of(rows, names.TIME_STEP)
    missing = missing_steps(rows, config)
    pieces.append(
        f"{len(steps)} of {len(steps) + missing} training steps" if missing else f"{len(steps)} training steps"
    )
    if missing:
        pieces.append(f"an open page is loaded again every {RELOAD_SECONDS} s")
    if rows:
        pieces.append(_duration(rows[-1]["time"] - rows[0]["time"]) + " from the first to the last record")
        pieces.append(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(rows[-1]["time"])))
    return " · ".join(piece for piece in pieces if piece)


def missing_steps(rows: Sequence[Row], config: Mapping[str, Any]) -> int:
    """Return the number of steps that a run has not played yet; 0 if its configuration does not say how many."""
    steps = int(config.get("run", {}).get("steps", 0))
    return max(0, steps - len(values_of(rows, names.TIME_STEP)[0]))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _statement(statement: str | None) -> str:
    if not statement:
        return ""
    paragraphs = "".join(f"<p>{escape(part.strip())}</p>" for part in statement.split("\n\n") if part.strip())
    return f'<div class="statement">{paragraphs}</div>'


def _outcome(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _before_and_after(rows: Sequence[Row], changes: Mapping[str, AccuracyChange]) -> str:
    return "\n".join(filter(None, (_set_table(rows, name, changes) for name in sorted(evaluation_sets(rows)))))


def _set_table(rows: Sequence[Row], set_name: str, changes: Mapping[str, AccuracyChange]) -> str:
    accuracy = names.evaluation_name(set_name, names.ACCURACY)
    evaluations = [row for row in rows if row.get(accuracy) is not None]
    if not evaluations:
        return ""
    first, last = evaluations[0], evaluations[-1]
    lines = []
    for metric in _TABLE:
        full_name = names.evaluation_name(set_name, metric)
        before, after = first.get(full_name), last.get(full_name)
        if before is None and after is None:
            continue
        lines.append(
            f"<tr><td>{metric.label.capitalize()}</td><td>{metric.show(before)}</td><td>{metric.show(after)}</td>"
            f"{_change(metric, before, after, _half_width(changes, set_name, before, after))}</tr>"
        )
    heading = f"Before and after, on {set_name}"
    return (
        f'<h2>{escape(heading)}</h2><div class="table"><table><thead><tr><th></th><th>step {first["step"]}</th>'
        f"<th>step {last['step']}</th><th>change</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        + ('<p class="note">±: interval of 95 % of the change, over problems.</p>' if "±" in "".join(lines) else "")
    )


def _half_width(changes: Mapping[str, AccuracyChange], set_name: str, before: Any, after: Any) -> float | None:
    """Return the interval of a change of the accuracies in the files of a set; None for other metrics."""
    for label in (set_name, f"{set_name}.greedy"):
        change = changes.get(label)
        if change and None not in (before, after) and abs(change.before - before) + abs(change.after - after) < 1e-6:
            return change.half_width
    return None


def _change(metric: names.Metric, before: Any, after: Any, half_width: float | None) -> str:
    if before is None or after is None:
        return "<td>-</td>"
    text = f"{after - before:+{metric.form}}"
    if half_width is not None and metric.better == "higher":
        text += f' <span class="dim">± {metric.show(half_width)}</span>'
    if metric.better is None or before == after:
        return f"<td>{text}</td>"
    is_better = (after > before) is (metric.better == "higher")
    return f'<td class="{"better" if is_better else "worse"}">{text}</td>'


def _examples(run_directory: Path) -> str:
    examples = choose_examples(run_directory)
    if not examples:
        return ""
    return (
        '<h2>Sample trajectories</h2><p class="key dim">One problem of each kind, preferably with tool calls: not a '
        "representative sample. "
        '<span class="code">code the model wrote</span> <span class="observation">output of the interpreter</span> '
        '<span class="invented">output the model invented</span> '
        f'<span class="answer">final answer</span></p>{examples_html(examples)}'
    )
