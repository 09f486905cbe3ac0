"""The check of metrics: the values that follow from trajectories, computed again."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torl.base.inputs import parse_json, read_file
from torl.base.types import ScoredGroup
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.files import SUMMARY_FILE
from torl.run.records.reading import read_metrics
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.naive.dynamics import naive_dynamics, naive_greedy, naive_kinds, naive_staleness, naive_summary
from torl_lab.audit.naive.responses import responses_of
from torl_lab.audit.replay import is_complete

_TOLERANCE = 1e-6
_LOSS_TOLERANCE = 1e-5  # a sum of float32 numbers over all tokens
OF_ALL_PROBLEMS = (names.ACCURACY, names.GREEDY_ACCURACY, names.SOLVED)
# They depend on a tool's complete output, which a record may truncate.
_OF_OUTPUTS = (
    names.CROSS_CHECKED,
    names.CROSS_CHECK_AGREED,
    names.CROSS_CHECK_CHANGED,
    names.CROSS_CHECK_CORRECTED,
)

_BY_KIND = names.kind_name.prefix


def check_row(
    check: Check,
    place: str,
    expected: Mapping[str, float],
    row: Mapping[str, Any],
    unknown: tuple[str, ...] = (),
    measured: Collection[str] = (),
) -> None:
    """Compare recomputed metrics with a row of metrics, which must have no others but measured ones.

    `unknown` has beginnings of plain names of metrics that are not recomputed from these records, `measured` has names.
    """
    for name, found in row.items():
        _, plain = names.split_evaluation(name) or ("", name)
        of_no_filter = found == 0 and name in names.dropped_groups  # in the rows of earlier versions (`names.RENAMED`)
        if name not in expected and plain not in measured and not plain.startswith(unknown) and not of_no_filter:
            check.add(False, f"{place}, {name}: expected no value, found {found!r:.60}")
    for name, value in expected.items():
        found = row.get(name)
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        tolerance = _LOSS_TOLERANCE if name == names.LOSS else _TOLERANCE
        right = is_number and math.isclose(value, found or 0, rel_tol=tolerance, abs_tol=tolerance)
        gap = abs(value - (found or 0)) if is_number else 0.0
        text = "no value" if name not in row else f"{found:.6g}" if is_number else repr(found)
        check.add(right, f"{place}, {name}: expected {value:.6g}, found {text}", gap)


def check_summary(check: Check, history: RunHistory) -> None:
    """Compare the summary of a finished run with its metrics. The report's path may change with the directory.

    A run without it has not ended, also if it has written its model: it may have been killed between the two. If the
    summary was removed, the receipt has its hash.
    """
    path = history.directory / SUMMARY_FILE
    if not history.finished:
        return
    with check.reading(SUMMARY_FILE):
        found = parse_json(read_file(path))
        for name, value in naive_summary(read_metrics(history.directory)).items():
            check.expect(f"{SUMMARY_FILE}, {name}", value, found.get(name))


def unknown_metrics(groups: Sequence[ScoredGroup], *, metadata: bool) -> tuple[str, ...]:
    """Return the beginnings of the metrics that the records of groups do not determine.

    With `metadata`, problems have their metadata, and prompts their variants, which records lack.
    """
    calls = (call for trajectory, _ in responses_of(groups) for call in trajectory.tool_calls)
    outputs = () if all(is_complete(call.outcome) for call in calls) else _OF_OUTPUTS
    return (() if metadata else (names.RIGHT_TOOL, _BY_KIND)) + outputs


def step_metrics(
    groups: Sequence[ScoredGroup], step: int, config: TrainConfig, unknown: tuple[str, ...]
) -> dict[str, float]:
    """Return the metrics of a step that follow from its trajectories, without unknown ones (`unknown_metrics`)."""
    trajectories = [trajectory for trajectory, _ in responses_of(groups)]
    return _dynamics(groups, config, unknown) | naive_staleness(trajectories, step)


def evaluation_metrics(
    set_name: str,
    groups: Sequence[ScoredGroup],
    greedy: Sequence[ScoredGroup],
    config: LearningConfig,
    *,
    too_long: int,
    problems: int | None,
    unknown: tuple[str, ...],
) -> dict[str, float]:
    """Return the metrics of an evaluation that follow from its trajectories, under their names in a row.

    Args:
        set_name: Name of the evaluation set.
        groups: Groups whose dynamics are measured.
        greedy: Groups of the greedy accuracy. Empty if it is not measured.
        config: Configuration of the run.
        too_long: Number of problems whose prompts are too long.
        problems: Number of the other problems. None if it is unknown, which leaves out the fractions of all problems.
        unknown: Beginnings of the metrics that are left out (`unknown_metrics`).
    """
    metrics = _dynamics(groups, config, unknown)
    if greedy:
        metrics |= naive_greedy(greedy)
    for name in metrics.keys() & set(OF_ALL_PROBLEMS):
        metrics[name] *= 1.0 if problems is None else problems / (problems + too_long)
    if problems is None and too_long:
        metrics = {name: value for name, value in metrics.items() if name not in OF_ALL_PROBLEMS}
    return names.evaluation_metrics(set_name, metrics)


def _dynamics(groups: Sequence[ScoredGroup], config: LearningConfig, unknown: tuple[str, ...]) -> dict[str, float]:
    metrics = naive_dynamics(groups)
    if config.run.group_metrics_by is not None:
        metrics |= naive_kinds(groups, config.run.group_metrics_by)
    return {name: value for name, value in metrics.items() if not name.startswith(unknown)}
