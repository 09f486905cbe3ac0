"""The curves of runs over their steps: one list for the viewer and for reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, partial
from typing import Any, Final

from torl.base.errors import ConfigError
from torl.base.plugins import load_each, plugins, subject
from torl.run.display.series import AccuracyChange, Row, evaluation_sets, means_of
from torl.run.records import metric_names as names

PANELS_GROUP: Final = "torl.panels"
"""Group of the entry points of panels: each a `Panel`, or a list of them."""


class Scale(Enum):
    """The vertical axis of a panel."""

    NUMBER = "numbers"
    FRACTION = "fractions, on an axis from 0 to 1"
    PERCENT = "fractions, with percentages at the axis"
    LOGARITHMIC = "positive numbers, by their logarithm"
    STACKED = "parts of a sum, stacked for a single run"


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure of metrics over the steps of one or several runs.

    Attributes:
        title: Title.
        note: What the curves show, in a sentence or two.
        lines: Metric of each line by its label, or several metrics, whose mean is shown.
        scale: Vertical axis.
        evaluated: Metrics of evaluations by their label: a page of one run has a line for each evaluation set.
    """

    title: str
    note: str
    lines: Mapping[str, str | Sequence[str]]
    scale: Scale = Scale.NUMBER
    evaluated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The metrics and configuration of a run, with its name in legends."""

    label: str
    rows: Sequence[Row]
    config: Mapping[str, Any]
    changes: Mapping[str, AccuracyChange] = field(default_factory=dict)
    """Change of the accuracy on each evaluation set, from the first to the last evaluation."""
    config_text: str = ""
    """The configuration as TOML."""

    @property
    def max_tool_calls(self) -> int | None:
        """The maximum number of tool calls (N in ZeroTIR, C in ToRL), the largest if it changes with the step.

        None if the configuration lacks it.
        """
        found = self.config.get("rollout", {}).get("max_tool_calls")
        if isinstance(found, list):  # pairs of a step and a value
            return max((int(value) for _, value in found), default=None)
        return None if found is None else int(found)


def _panel(
    *metrics: names.Metric,
    title: str | None = None,
    note: str | None = None,
    scale: Scale = Scale.NUMBER,
    evaluated: Sequence[names.Metric] = (),
) -> Panel:
    """Return the panel of some metrics; title and note are the label and the meanings of these, unless given."""
    first, *others = metrics
    return Panel(
        title or first.label[0].upper() + first.label[1:],
        note or " ".join(metric.meaning for metric in metrics),
        {metric.label if others else "training": metric for metric in metrics},
        scale,
        {"" if metric == first else metric.short: metric for metric in evaluated},
    )


_fractions: Final = partial(_panel, scale=Scale.FRACTION)
PANELS: Final = (
    _panel(names.ACCURACY, scale=Scale.PERCENT, evaluated=(names.ACCURACY, names.GREEDY_ACCURACY)),
    _fractions(names.CODE_RATIO, evaluated=(names.CODE_RATIO, names.GREEDY_CODE_RATIO)),
    _fractions(names.PASS_RATIO, evaluated=(names.PASS_RATIO,)),
    _fractions(names.PASS_RATIO_CORRECT, names.PASS_RATIO_INCORRECT, title="Pass ratio by outcome"),
    _fractions(names.EXECUTED_RATIO, names.BEFORE_ANSWER_RATIO, title="Use of code"),
    _fractions(names.RECOVERED_ERRORS, evaluated=(names.RECOVERED_ERRORS,)),
    _panel(names.CALLS_PER_TRAJECTORY, title="Interactions"),
    _panel(names.CODE_BLOCKS_PER_RESPONSE),
    _panel(names.CODE_LINES),
    _panel(names.CODE_LINES_HARD, names.CODE_LINES_EASY, title="Code by difficulty"),
    _fractions(
        *(names.CROSS_CHECKED, names.CROSS_CHECK_AGREED),
        title="Cross-checks",
        note="Responses that run code after a boxed answer, and the fraction of them whose run agrees.",
    ),
    _fractions(
        *(names.CROSS_CHECK_CHANGED, names.CROSS_CHECK_CORRECTED),
        title="After a contradiction",
        note="Cross-checked responses with a changed answer; of those whose run disagrees, a correct answer.",
    ),
    _fractions(
        *(names.RAN_BEFORE_ANSWER, names.RAN_AFTER_ANSWER),
        title="Use of the tool around the answer",
        note="Responses that ran code before and after their first boxed answer, of those that ran any.",
    ),
    _fractions(names.CHANGED_CODE, title="Change of strategy"),
    _fractions(names.INVENTED_RESULTS),
    _panel(
        *(names.RESPONSE_TOKENS, names.SAMPLED_TOKENS, names.OBSERVED_TOKENS),
        title="Response length",
        note="Mean number of tokens of a response; observed tokens come from tools.",
    ),
    _panel(names.REWARD_MEAN),
    _panel(names.VALIDATION_LOSS),
    _panel(names.ENTROPY),
    _panel(names.GRADIENT_NORM),
    _panel(names.LOGPROB_GAP_MEAN, names.LOGPROB_GAP_MAX, title="Log-probability gap", scale=Scale.LOGARITHMIC),
    _fractions(names.UNIFORM_GROUPS, names.TRUNCATED, title="Groups without signal, and truncated responses"),
    _panel(names.TIME_STEP, note="Comparable only on the same machine (ToRL, table 4)."),
    _panel(
        *(names.TIME_WAIT, names.TIME_LEARN, names.TIME_SYNC),
        title="Seconds of a step, by phase",
        note="Where the time of a training step goes.",
        scale=Scale.STACKED,
    ),
    _panel(
        *(names.TIME_ROLLOUT, names.TIME_REWARD),
        title="Seconds of the episodes of a step",
        note="If rollouts run ahead of the learner, much of this time belongs to earlier steps.",
    ),
)
"""The panels of every run, in the order of a page. One without data is left out."""


@cache
def installed_panels() -> tuple[Panel, ...]:
    """Return the panels of installed packages, which add them by the entry point "torl.panels".

    Raises:
        ConfigError: A package adds something else, or a panel with the title of another one.
    """
    owners = {panel.title: "torl" for panel in PANELS}
    found = []
    for point in plugins(PANELS_GROUP).values():
        for panel in load_each(point, Panel):
            if panel.title in owners:
                raise ConfigError(
                    f"{subject(point)} has the title {panel.title!r}, as a panel of {owners[panel.title]} does"
                )
            owners[panel.title] = point.value
            found.append(panel)
    return tuple(found)


def panels_of(runs: Sequence[RunRecords]) -> list[Panel]:
    """Return all panels of runs, also panels without data.

    Several runs have a panel for each evaluation set; a single one has a line for each set, and its reward parts.
    """
    if len(runs) == 1:
        [run] = runs
        sets = sorted(evaluation_sets(run.rows))
        return [
            *_losses(runs),
            *(_with_sets(panel, sets) for panel in (*PANELS, *installed_panels())),
            *_by_kind(run.rows),
            _reward_parts(run.rows),
        ]
    accuracy, *others = PANELS
    return [
        *_evaluations(runs),
        *_losses(runs),
        replace(accuracy, title="Training accuracy"),
        *others,
        *installed_panels(),
    ]


def figure_of(panel: Panel, runs: Sequence[RunRecords]) -> dict[str, Any]:
    """Return a panel as JSON, with its lines that have data, run by run.

    A line has the label of its run, its number in the panel, and whether it is measured at some steps only, by
    evaluations.
    """
    lines = []
    for run in runs:
        for number, (label, line) in enumerate(panel.lines.items()):
            metrics = [line] if isinstance(line, str) else line
            steps, values = means_of(run.rows, metrics)
            if steps:
                evaluated = metrics[0] == names.VALIDATION_LOSS or metrics[0] in names.evaluation_name
                found = {"run": run.label, "line": number, "label": label, "steps": steps, "values": values}
                lines.append({**found, "evaluated": evaluated})
    return {"title": panel.title, "note": panel.note, "scale": panel.scale.name.lower(), "lines": lines}


def sets_of(runs: Sequence[RunRecords]) -> list[str]:
    """Return the names of the evaluation sets of all runs, sorted."""
    return sorted({name for run in runs for name in evaluation_sets(run.rows)})


def _evaluations(runs: Sequence[RunRecords]) -> Iterator[Panel]:
    sets = sets_of(runs)
    note = "Fraction of correct responses by training step (ToRL, figures 1 and 4)."
    for name in sets:
        yield Panel(f"Accuracy on {name}", note, _accuracies([name]), Scale.PERCENT)
    if len(sets) > 1:
        note = "Each set has the same weight; only steps at which all were evaluated."
        yield Panel("Accuracy, mean over sets", note, _accuracies(sets), Scale.PERCENT)


def _accuracies(sets: Sequence[str]) -> dict[str, list[str]]:
    metrics = {"sampled": names.ACCURACY, "greedy": names.GREEDY_ACCURACY}
    return {label: [names.evaluation_name(name, metric) for name in sets] for label, metric in metrics.items()}


def _with_sets(panel: Panel, sets: Sequence[str]) -> Panel:
    of_sets = {
        f"{name}, {label}" if label else name: names.evaluation_name(name, metric)
        for name in sets
        for label, metric in panel.evaluated.items()
    }
    return replace(panel, lines={**panel.lines, **of_sets})


def _losses(runs: Sequence[RunRecords]) -> Iterator[Panel]:
    """Yield the loss of fine-tuning. The loss of a policy gradient shows nothing."""
    if not any(names.REWARD_MEAN in row for run in runs for row in run.rows):
        yield _panel(names.LOSS, note="Mean cross-entropy of the trained tokens of a step, in nats.")


def _by_kind(rows: Sequence[Row]) -> Iterator[Panel]:
    note = "Training problems by `run.group_metrics_by`."
    yield Panel("Accuracy by kind", note, names.kinds_of(rows, names.ACCURACY), Scale.FRACTION)
    yield Panel("Code ratio by kind", note, names.kinds_of(rows, names.CODE_RATIO), Scale.FRACTION)


def _reward_parts(rows: Sequence[Row]) -> Panel:
    """Return the panel of the parts of the reward, whose names depend on the reward."""
    parts = sorted({name for row in rows for name in row if name in names.reward_part})
    lines = {name.removeprefix(names.reward_part.prefix): name for name in parts}
    note = "Mean of each part of the reward, over the responses that have it, and of the turn rewards."
    return Panel("Parts of the reward", note, {**lines, names.REWARD_TURNS.label: names.REWARD_TURNS})
