"""Figures, tables and sample trajectories of a report, as the viewer's page draws them (`view/static/report.js`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torl.components.text.answers import shown_reference
from torl.run.display.series import LogFit, log_fit
from torl.run.records.behaviors import cross_check, recovers, same_value
from torl.run.records.files import evaluation_files, training_files
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl_lab.view.detail import cut, segments


@dataclass(frozen=True, slots=True)
class Bar:
    """A fraction with its interval, as one bar of a series in a group."""

    series: str
    group: str
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """An accuracy with its interval, if known, for a number of tool calls."""

    calls: int
    value: float
    interval: tuple[float, float] | None = None


def table(title: str, head: Sequence[str], rows: Iterable[Iterable[Any]], note: str = "") -> dict[str, Any]:
    """Return a table. A cell is a text, or a text with "better" or "worse"."""
    return {"title": title, "head": list(head), "rows": [list(row) for row in rows], "note": note}


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> dict[str, Any]:
    """Return bars with their intervals, by group."""
    groups = {
        group: [[bar.series, bar.value, *bar.interval] for bar in bars if bar.group == group]
        for group in dict.fromkeys(bar.group for bar in bars)
    }
    return {"title": title, "note": note, "groups": groups}


def fit_of(points: Sequence[Point]) -> LogFit | None:
    """Fit a + b ln(1 + N); None with fewer than three numbers of calls, because any line fits two."""
    if len({point.calls for point in points}) < 3:
        return None
    return log_fit([point.calls for point in points], [point.value for point in points])


def calls_chart(title: str, note: str, series: Mapping[str, Sequence[Point]]) -> dict[str, Any] | None:
    """Return the accuracy by the number of tool calls, with fitted lines; None if all points have the same number."""
    if len({point.calls for points in series.values() for point in points}) < 2:
        return None
    lines: list[dict[str, Any]] = []
    for name, points in series.items():
        calls, values, fit = [point.calls for point in points], [point.value for point in points], fit_of(points)
        bounds = [point.interval or (point.value, point.value) for point in points]
        line = {"run": name, "line": 0, "label": "", "steps": calls, "values": values, "evaluated": True}
        lines.append(line | {"intervals": bounds if any(point.interval for point in points) else []})
        if fit is not None:
            between = [calls[0] + (calls[-1] - calls[0]) * part / 50 for part in range(51)]
            fitted = {"line": 1, "label": "fit", "steps": between, "values": [fit.at(each) for each in between]}
            lines.append(line | fitted | {"intervals": [], "evaluated": False})
    return {"title": title, "note": note, "scale": "percent", "axis": "N", "lines": lines}


_KINDS: Final = {
    "fixed": "wrong before, right after",
    "solved": "right before and after",
    "failed": "wrong before and after",
    "regressed": "right before, wrong after",
    "recovered": "an error, and a later successful run (ToRL, table 5)",
    "corrected": "an answer that code contradicted, then a right one (ToRL, table 6)",
}


@dataclass(frozen=True, slots=True)
class BeforeAndAfter:
    """One problem with its first and its last response."""

    kind: str
    before: TrajectoryRecord
    after: TrajectoryRecord


def choose_examples(run_directory: Path) -> list[BeforeAndAfter]:
    """Choose the first problem of each kind in the first evaluation set with two evaluations; kinds may be missing.

    Without such a set, choose from the problems that the first and the last training step share.
    """
    candidates = (files for files in evaluation_files(run_directory).values() if len(files) > 1)
    files = next(candidates, None) or training_files(run_directory)
    if len(files) < 2:
        return []
    first: dict[str, TrajectoryRecord] = {}
    for record in read_trajectories(files[0]):
        first.setdefault(record.trajectory.prompt.problem.id, record)
    examples: dict[str, BeforeAndAfter] = {}
    for after in read_trajectories(files[-1]):
        before = first.pop(after.trajectory.prompt.problem.id, None)
        if before is None:
            continue
        kind = (("failed", "fixed"), ("regressed", "solved"))[before.grade.correct][after.grade.correct]
        if kind in examples and after.trajectory.tool_calls and not examples[kind].after.trajectory.tool_calls:
            del examples[kind]  # a response with calls shows more
        is_checked = after.grade.correct and "corrected" not in examples
        check = cross_check(after.trajectory) if is_checked else None
        kinds = {
            kind: True,
            "recovered": recovers(after.trajectory, after.grade),
            "corrected": check is not None and not same_value(*check),
        }
        for each in (name for name, holds in kinds.items() if holds):
            examples.setdefault(each, BeforeAndAfter(each, before, after))
    return [examples[kind] for kind in _KINDS if kind in examples]


def shown_examples(run_directory: Path) -> list[dict[str, Any]]:
    """Return the chosen examples as JSON, each with the sequences of its two responses in segments."""
    return [
        {
            "title": _KINDS[example.kind].capitalize(),
            "problem": problem.id,
            "question": cut(problem.question),
            "reference": cut(shown_reference(problem.answer)),
            "responses": [_response("Before", example.before), _response("After", example.after)],
        }
        for example in choose_examples(run_directory)
        for problem in [example.before.trajectory.prompt.problem]
    ]


def _response(title: str, record: TrajectoryRecord) -> dict[str, Any]:
    row = encode_trajectory(record)
    return {
        "title": title,
        "step": record.step,
        "flags": ["correct"] if record.grade.correct else [],
        "finish": row["finish_reason"],
        "failure": record.grade.failure,
        "statuses": [call.outcome.status.value for call in record.trajectory.tool_calls],
        "sequences": [list(segments(each)) for each in (*row.get("branches", ()), row)],
    }
