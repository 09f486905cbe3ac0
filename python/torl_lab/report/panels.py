"""The papers' figures over the steps of several runs, as charts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torl.run.display.changes import AccuracyChange
from torl.run.display.series import Row, means_of, moving_mean
from torl.run.records import metric_names as names
from torl_lab.report.figures import COLORS, chart_html, over_steps

DASHES: Final = ("solid", "dot")


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The metrics and configuration of a run, with its name in legends."""

    label: str
    rows: Sequence[Row]
    config: Mapping[str, Any]
    changes: Mapping[str, AccuracyChange] = field(default_factory=dict)
    """Change of the accuracy on each evaluation set, from the first to the last evaluation."""

    @property
    def max_tool_calls(self) -> int | None:
        """The maximum number of tool calls (N in ZeroTIR, C in ToRL), the largest if it changes with the step.

        None if the configuration lacks it.
        """
        found = self.config.get("rollout", {}).get("max_tool_calls")
        if isinstance(found, list):  # pairs of a step and a value
            return max((int(value) for _, value in found), default=None)
        return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure: for each run a solid and a dotted line, each the mean of its metrics.

    The keys of `lines` are suffixes to the name of the run.
    """

    title: str
    note: str
    lines: Mapping[str, tuple[str, ...]]
    percent: bool = False
    ratio: bool = False  # between 0 and 1, on an axis of this range
    evaluated: bool = False  # measured at some steps: marked, not smoothed


_TRAINING: Final = (
    Panel(
        "Training accuracy", "Fraction of a step's responses that are correct.", {"": (names.ACCURACY,)}, percent=True
    ),
    Panel("Code ratio", "Responses with code / responses (ToRL, figure 5a).", {"": (names.CODE_RATIO,)}, ratio=True),
    Panel(
        "Pass ratio",
        "Runs without an error / runs (ToRL, figure 5b).",
        {"": (names.PASS_RATIO,)},
        ratio=True,
    ),
    Panel(
        "Pass ratio by outcome",
        "Within correct responses; dotted: within incorrect ones (ToRL, figure 5c).",
        {"": (names.PASS_RATIO_CORRECT,), ", incorrect": (names.PASS_RATIO_INCORRECT,)},
        ratio=True,
    ),
    Panel(
        "Use of code",
        "Blocks that ran / blocks; dotted: blocks before the answer / blocks (ToRL, figure 5d).",
        {"": (names.EXECUTED_RATIO,), ", before the answer": (names.BEFORE_ANSWER_RATIO,)},
        ratio=True,
    ),
    Panel("Interactions", "Tool calls of a response (ZeroTIR).", {"": (names.CALLS_PER_TRAJECTORY,)}),
    Panel("Code blocks of a response", "The code ratio of ZeroTIR.", {"": (names.CODE_BLOCKS_PER_RESPONSE,)}),
    Panel(
        "Lines of a code block",
        "Without empty lines and comments: an executability penalty may make code trivial.",
        {"": (names.CODE_LINES,)},
    ),
    Panel(
        "Cross-checks",
        "Responses that run code after a boxed answer; dotted: the fraction of them whose run agrees.",
        {"": (names.CROSS_CHECKED,), ", agreed": (names.CROSS_CHECK_AGREED,)},
        ratio=True,
    ),
    Panel(
        "After a contradiction",
        "Within the cross-checked responses: a changed answer; dotted: of those whose run disagrees, a right answer.",
        {"": (names.CROSS_CHECK_CHANGED,), ", corrected": (names.CROSS_CHECK_CORRECTED,)},
        ratio=True,
    ),
    Panel(
        "Use of the tool around the answer",
        "Responses that ran code before their first answer, of those that ran any; dotted: after it.",
        {"": (names.RAN_BEFORE_ANSWER,), ", after": (names.RAN_AFTER_ANSWER,)},
        ratio=True,
    ),
    Panel(
        "Change of strategy",
        "A run shares less than half of its lines with the run before it, of responses with at least two runs.",
        {"": (names.CHANGED_CODE,)},
        ratio=True,
    ),
    Panel(
        "Code by difficulty",
        "Lines of a code block in groups with an accuracy below 1/2; dotted: in the other groups.",
        {"": (names.CODE_LINES_HARD,), ", easy": (names.CODE_LINES_EASY,)},
    ),
    Panel(
        "Invented results",
        "Responses in which the model wrote a tool result itself / responses.",
        {"": (names.INVENTED_RESULTS,)},
        ratio=True,
    ),
    Panel(
        "Recovered errors",
        "Correct responses in which a run failed and a later run succeeded / responses.",
        {"": (names.RECOVERED_ERRORS,)},
        ratio=True,
    ),
    Panel(
        "Response length",
        "Mean number of tokens of a response; dotted: sampled tokens only.",
        {"": (names.RESPONSE_TOKENS,), ", sampled": (names.SAMPLED_TOKENS,)},
    ),
    Panel("Reward", "Mean total reward of a response.", {"": (names.REWARD_MEAN,)}),
    Panel(
        "Validation loss",
        "Mean cross-entropy of the trained tokens of the validation examples, in nats (fine-tuning).",
        {"": (names.VALIDATION_LOSS,)},
        evaluated=True,
    ),
    Panel("Entropy", "Mean entropy at the learned tokens, in nats.", {"": (names.ENTROPY,)}),
    Panel("Seconds of a step", "Comparable only on the same machine (ToRL, table 4).", {"": (names.TIME_STEP,)}),
)


def panel_sections(runs: Sequence[RunRecords], window: int) -> Iterator[tuple[Panel, str]]:
    """Yield each figure with data other than 0, with its HTML, beginning with the accuracies on the evaluation sets.

    Args:
        runs: Runs in the order of their colors.
        window: Number of steps that training curves are averaged over.
    """
    for number, panel in enumerate(panels_of(runs)):
        figure = None if is_zero(panel, runs) else _figure(panel, runs, window)
        if figure is not None:
            yield panel, chart_html(figure, f"panel-{number}")


def panels_of(runs: Sequence[RunRecords]) -> list[Panel]:
    """Return all figures of these runs, also figures without data, beginning with the accuracies on evaluation sets."""
    return [*_evaluations(runs), *_losses(runs), *_TRAINING]


def is_zero(panel: Panel, runs: Sequence[RunRecords]) -> bool:
    """Whether a figure of training has data, and all of it is 0."""
    found = [value for run in runs for metrics in panel.lines.values() for value in means_of(run.rows, metrics)[1]]
    return not panel.evaluated and bool(found) and not any(found)


def sets_of(runs: Sequence[RunRecords]) -> list[str]:
    """Return the names of the evaluation sets of all runs."""
    return sorted(
        {part[0] for run in runs for row in run.rows for name in row if (part := names.split_evaluation(name))}
    )


def _evaluations(runs: Sequence[RunRecords]) -> Iterator[Panel]:
    note = "Fraction of correct responses by training step; dotted: of greedy responses (ToRL, figures 1 and 4)."
    sets = sets_of(runs)
    for name in sets:
        yield Panel(f"Accuracy on {name}", note, _accuracies([name]), percent=True, evaluated=True)
    if len(sets) > 1:
        note = "Each set has the same weight; only steps at which all were evaluated."
        yield Panel("Accuracy, mean over sets", note, _accuracies(sets), percent=True, evaluated=True)


def _losses(runs: Sequence[RunRecords]) -> Iterator[Panel]:
    """Yield the loss of fine-tuning. The loss of a policy gradient shows nothing."""
    if not any(names.REWARD_MEAN in row for run in runs for row in run.rows):
        yield Panel("Loss", "Mean cross-entropy of the trained tokens of a step, in nats.", {"": (names.LOSS,)})


def _accuracies(sets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {
        "": tuple(names.evaluation_name(name, names.ACCURACY) for name in sets),
        ", greedy": tuple(names.evaluation_name(name, names.GREEDY_ACCURACY) for name in sets),
    }


def _figure(panel: Panel, runs: Sequence[RunRecords], window: int) -> Any:
    import plotly.graph_objects as graph

    figure: Any = graph.Figure()
    for number, run in enumerate(runs):
        color = COLORS[number % len(COLORS)]
        for dash, (suffix, metrics) in zip(DASHES, panel.lines.items(), strict=False):
            steps, values = means_of(run.rows, metrics)
            if not steps:
                continue
            label = run.label + suffix
            # Earlier runs have wider lines, so that equal runs do not hide each other.
            width = min(2.5 + 2 * (len(runs) - 1 - number), 8)
            line = {"width": width if dash == "solid" else 2, "color": color, "dash": dash}
            values_shown = values if panel.evaluated else moving_mean(values, window)
            mode = "lines+markers" if panel.evaluated or len(steps) == 1 else "lines"
            if not panel.evaluated:
                faint = {"width": 1, "color": color}
                figure.add_scatter(
                    x=steps,
                    y=values,
                    name=label,
                    mode="lines",
                    line=faint,
                    opacity=0.25,
                    showlegend=False,
                    hoverinfo="skip",
                )
            if panel.evaluated and dash == "solid" and steps[0] == 0 and len(steps) > 1:
                # The base of the run, which its curve is read against.
                figure.add_scatter(
                    x=[0, steps[-1]],
                    y=[values[0]] * 2,
                    name=f"{label}, before training",
                    mode="lines",
                    line={"width": 1, "color": color, "dash": "dash"},
                    opacity=0.6,
                    showlegend=False,
                    hoverinfo="skip",
                )
            # The note explains dotted lines; a legend of all lines is too large.
            legend = dash == "solid"
            figure.add_scatter(
                x=steps, y=values_shown, name=label, mode=mode, line=line, marker={"size": 7}, showlegend=legend
            )
    if not figure.data:
        return None
    over_steps(figure).update_layout(showlegend=True)
    figure.update_yaxes(rangemode="tozero")
    if panel.ratio:
        figure.update_yaxes(range=[-0.02, 1.02])
    if panel.percent:
        figure.update_yaxes(tickformat=".0%")
    return figure
