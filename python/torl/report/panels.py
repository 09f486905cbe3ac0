"""The figures of the papers over the steps of several runs: which metrics, and how each becomes a chart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torl.records import metric_names as names
from torl.report.figures import COLORS, chart_html, over_steps
from torl.report.series import Row, means_of, moving_mean

DASHES: Final = ("solid", "dot")


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What a chart takes of a run: its name in the legends, its metrics, its configuration."""

    label: str
    rows: Sequence[Row]
    config: Mapping[str, Any]

    @property
    def max_tool_calls(self) -> int | None:
        """N in ZeroTIR, C in ToRL; None where the configuration does not say."""
        found = self.config.get("rollout", {}).get("max_tool_calls")
        return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure: for each run a line of the first metric, and a dotted one of the second; of several, their mean.

    The keys are what a line adds to the name of its run.
    """

    title: str
    note: str
    lines: Mapping[str, tuple[str, ...]]
    percent: bool = False
    ratio: bool = False  # between 0 and 1, shown whole
    evaluated: bool = False  # measured now and then: marked, not smoothed


_TRAINING: Final = (
    Panel("Training accuracy", "Share of a step's responses that are correct.", {"": (names.ACCURACY,)}, percent=True),
    Panel("Code ratio", "Responses with code / responses (ToRL, figure 5a).", {"": (names.CODE_RATIO,)}, ratio=True),
    Panel(
        "Pass ratio",
        "Runs that ended without an error / runs (ToRL, figure 5b).",
        {"": (names.PASS_RATIO,)},
        ratio=True,
    ),
    Panel(
        "Pass ratio by outcome",
        "Within correct responses, and dotted within incorrect ones (ToRL, figure 5c).",
        {"": (names.PASS_RATIO_CORRECT,), ", incorrect": (names.PASS_RATIO_INCORRECT,)},
        ratio=True,
    ),
    Panel(
        "Use of code",
        "Blocks that ran / blocks, and dotted blocks before the answer / blocks (ToRL, figure 5d).",
        {"": (names.EXECUTED_RATIO,), ", before the answer": (names.BEFORE_ANSWER_RATIO,)},
        ratio=True,
    ),
    Panel("Interactions", "Tool calls of a response (ZeroTIR).", {"": (names.CALLS_PER_TRAJECTORY,)}),
    Panel("Code blocks of a response", "What ZeroTIR calls its code ratio.", {"": (names.CODE_BLOCKS_PER_RESPONSE,)}),
    Panel(
        "Lines of a code block",
        "Without empty ones and comments: an executability penalty may make code trivial.",
        {"": (names.CODE_LINES,)},
    ),
    Panel(
        "Cross-checks",
        "Responses that run code after a boxed answer, and dotted the share of them whose run agrees.",
        {"": (names.CROSS_CHECKED,), ", agreed": (names.CROSS_CHECK_AGREED,)},
        ratio=True,
    ),
    Panel(
        "Recovered errors",
        "Correct responses in which a run failed and a later one did not / responses.",
        {"": (names.RECOVERED_ERRORS,)},
        ratio=True,
    ),
    Panel(
        "Response length",
        "Mean tokens of a response, and dotted those that the model sampled.",
        {"": (names.RESPONSE_TOKENS,), ", sampled": (names.SAMPLED_TOKENS,)},
    ),
    Panel("Reward", "Mean of all that a response is paid.", {"": (names.REWARD_MEAN,)}),
    Panel("Entropy", "Mean entropy at the tokens that are learned from, in nats.", {"": (names.ENTROPY,)}),
    Panel("Seconds of a step", "Compare runs of one machine only (ToRL, table 4).", {"": (names.TIME_STEP,)}),
)


def panel_sections(runs: Sequence[RunRecords], window: int) -> Iterator[tuple[Panel, str]]:
    """Each figure that a run has data for, with its HTML; accuracies of the evaluation sets come first.

    Args:
        runs: in the order of their colors.
        window: steps of the mean that is drawn over the steps of training, each of them faint behind it.
    """
    for number, panel in enumerate((*_evaluations(runs), *_TRAINING)):
        figure = _figure(panel, runs, window)
        if figure is not None:
            yield panel, chart_html(figure, f"panel-{number}")


def sets_of(runs: Sequence[RunRecords]) -> list[str]:
    """The evaluation sets of all runs, by name."""
    return sorted(
        {part[0] for run in runs for row in run.rows for name in row if (part := names.split_evaluation(name))}
    )


def _evaluations(runs: Sequence[RunRecords]) -> Iterator[Panel]:
    note = "Share of correct responses by steps of training, and dotted of greedy ones (ToRL, figures 1 and 4)."
    sets = sets_of(runs)
    for name in sets:
        yield Panel(f"Accuracy on {name}", note, _accuracies([name]), percent=True, evaluated=True)
    if len(sets) > 1:
        note = "Each set counts the same; steps at which all were played."
        yield Panel("Accuracy, mean over sets", note, _accuracies(sets), percent=True, evaluated=True)


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
            line = {"width": 2.5 if dash == "solid" else 2, "color": color, "dash": dash}
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
            # The note says what is dotted: a legend of every line would leave no room for the lines.
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
