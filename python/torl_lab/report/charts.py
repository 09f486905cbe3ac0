"""The curves of a report, as interactive charts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from torl.run.display.series import Row, moving_mean, values_of
from torl.run.records import metric_names as names
from torl_lab.report.figures import COLORS, chart_html, over_steps

_WINDOW: Final = 5


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: training metrics by label, and metrics of each evaluation set by label suffix."""

    title: str
    note: str
    training: Mapping[str, str]
    evaluated: Mapping[str, str]
    share: bool = False  # between 0 and 1
    logarithmic: bool = False
    stacked: bool = False

    def is_zero(self, rows: Sequence[Row]) -> bool:
        """Whether all values of the chart are 0."""
        metrics, evaluated = set(self.training.values()), set(self.evaluated.values())
        return not any(
            value
            for row in rows
            for name, value in row.items()
            if name in metrics or ((part := names.split_evaluation(name)) and part[1] in evaluated)
        )


CHARTS: Final = (
    Chart(
        "Accuracy",
        "Fraction of responses whose final answer is correct.",
        {"training": names.ACCURACY},
        {"": names.ACCURACY, ", greedy": names.GREEDY_ACCURACY},
        share=True,
    ),
    Chart(
        "Code ratio",
        "Fraction of responses that contain a code block.",
        {"training": names.CODE_RATIO},
        {"": names.CODE_RATIO, ", greedy": names.GREEDY_CODE_RATIO},
        share=True,
    ),
    Chart(
        "Pass ratio",
        "Fraction of runs without an error; also within correct and incorrect responses.",
        {
            "training": names.PASS_RATIO,
            "in correct": names.PASS_RATIO_CORRECT,
            "in incorrect": names.PASS_RATIO_INCORRECT,
        },
        {"": names.PASS_RATIO},
        share=True,
    ),
    Chart(
        "Recovered errors",
        "Fraction of responses that are correct, and in which a run failed and a later run succeeded.",
        {"training": names.RECOVERED_ERRORS},
        {"": names.RECOVERED_ERRORS},
        share=True,
    ),
    Chart(
        "Use of the tool",
        "Responses that ran code before or after stating an answer, changed their code, or invented results.",
        {
            "before the answer": names.RAN_BEFORE_ANSWER,
            "after the answer": names.RAN_AFTER_ANSWER,
            "changed code": names.CHANGED_CODE,
            "invented results": names.INVENTED_RESULTS,
        },
        {},
        share=True,
    ),
    Chart(
        "Cross-checks",
        "Responses that run code after a boxed answer; of these, runs that agree and final answers that differ. "
        "Corrected: right final answers of those whose run disagrees.",
        {
            "checked": names.CROSS_CHECKED,
            "agreed": names.CROSS_CHECK_AGREED,
            "changed": names.CROSS_CHECK_CHANGED,
            "corrected": names.CROSS_CHECK_CORRECTED,
        },
        {},
        share=True,
    ),
    Chart(
        "Lines of a code block",
        "Without empty lines and comments; hard: in groups with an accuracy below 1/2.",
        {"all": names.CODE_LINES, "hard": names.CODE_LINES_HARD, "easy": names.CODE_LINES_EASY},
        {},
    ),
    Chart("Reward", "Mean total reward of a response.", {"training": names.REWARD_MEAN}, {}),
    Chart(
        "Response length",
        "Mean number of tokens of a response; observed tokens come from tools.",
        {"sampled": names.SAMPLED_TOKENS, "observed": names.OBSERVED_TOKENS},
        {},
    ),
    Chart(
        "Use of code",
        "Fraction of blocks that ran, and of blocks before the answer.",
        {"executed": names.EXECUTED_RATIO, "before the answer": names.BEFORE_ANSWER_RATIO},
        {},
        share=True,
    ),
    Chart("Entropy", "Mean entropy at the tokens that are learned from, in nats.", {"training": names.ENTROPY}, {}),
    Chart("Gradient norm", "Global norm before clipping.", {"training": names.GRADIENT_NORM}, {}),
    Chart(
        "Log-probability gap",
        "Distance of the trainer's log-probabilities from the engine's, over learned tokens.",
        {"mean": names.LOGPROB_GAP_MEAN, "maximum": names.LOGPROB_GAP_MAX},
        {},
        logarithmic=True,
    ),
    Chart(
        "Groups without signal, and truncated responses",
        "Groups whose rewards are all equal; responses truncated at the token limit.",
        {"zero-variance groups": names.UNIFORM_GROUPS, "truncated": names.TRUNCATED},
        {},
        share=True,
    ),
    Chart(
        "Seconds of a step",
        "Time of a training step, by phase.",
        {"waiting for episodes": names.TIME_WAIT, "learning": names.TIME_LEARN, "weight sync": names.TIME_SYNC},
        {},
        stacked=True,
    ),
    Chart(
        "Seconds of the episodes of a step",
        "Time from the first episode to the last, and time in which a group was graded. If rollouts run ahead of the "
        "learner, much of it belongs to earlier steps.",
        {"playing": names.TIME_ROLLOUT, "grading": names.TIME_REWARD},
        {},
    ),
)


def chart_sections(rows: Sequence[Row]) -> list[tuple[Chart, str]]:
    """Return each chart that has data, with its HTML, which needs plotly.js on the page."""
    sets = sorted({part[0] for row in rows for name in row if (part := names.split_evaluation(name))})
    sections = []
    for index, chart in enumerate((*_losses(rows), *CHARTS, *_by_kind(rows), _reward_parts(rows))):
        figure = _figure(chart, rows, sets)
        if figure is not None:
            sections.append((chart, chart_html(figure, f"chart-{index}")))
    return sections


def _losses(rows: Sequence[Row]) -> Iterator[Chart]:
    """Yield the chart of the losses of fine-tuning. The loss of a policy gradient shows nothing."""
    if not any(names.REWARD_MEAN in row for row in rows):
        lines = {"training": names.LOSS, "validation": names.VALIDATION_LOSS}
        yield Chart("Loss", "Mean cross-entropy of the trained tokens, in nats.", lines, {})


def _by_kind(rows: Sequence[Row]) -> Iterator[Chart]:
    note = "Training problems by `run.group_metrics_by`."
    yield Chart("Accuracy by kind", note, names.kinds_of(rows, names.ACCURACY), {}, share=True)
    yield Chart("Code ratio by kind", note, names.kinds_of(rows, names.CODE_RATIO), {}, share=True)


def _reward_parts(rows: Sequence[Row]) -> Chart:
    """Return the chart of the parts of the reward, whose names depend on the reward."""
    parts = sorted({name for row in rows for name in row if name.startswith(names.REWARD_PART)})
    training = {name.removeprefix(names.REWARD_PART): name for name in parts}
    note = "Mean of each part of the reward, over the responses that have it, and of the turn rewards."
    return Chart("Parts of the reward", note, {**training, "turns": names.REWARD_TURNS}, {})


def _figure(chart: Chart, rows: Sequence[Row], sets: Sequence[str]) -> Any:
    import plotly.graph_objects as graph

    figure = graph.Figure()
    colors = cycle(COLORS)
    for label, name in chart.training.items():
        _add_training(figure, chart, label, *values_of(rows, name), next(colors))
    for set_name in sets:
        for suffix, name in chart.evaluated.items():
            steps, values = values_of(rows, names.evaluation_name(set_name, name))
            if steps:
                line = {"color": next(colors), "dash": "dot" if suffix else "solid", "width": 2}
                label = set_name + suffix
                figure.add_scatter(x=steps, y=values, name=label, mode="lines+markers", line=line, marker={"size": 7})
    if not figure.data:
        return None
    lines = {trace.name for trace in figure.data}
    over_steps(figure).update_layout(showlegend=len(chart.training) > 1 or len(lines) > 1)
    if chart.share:
        figure.update_yaxes(range=[-0.02, 1.02])
    if chart.logarithmic:
        figure.update_yaxes(type="log", dtick=1)
    return figure


def _add_training(figure: Any, chart: Chart, label: str, steps: list[int], values: list[float], color: str) -> None:
    """Add a faint curve of every step with a moving mean, or stacked areas for a stacked chart."""
    if chart.logarithmic:
        steps, values = _positive(steps, values)
    if not steps:
        return
    if chart.stacked:
        line = {"width": 0.5, "color": color}
        figure.add_scatter(x=steps, y=values, name=label, mode="lines", line=line, stackgroup="one")
        return
    smooth = len(values) >= 4 * _WINDOW and not chart.logarithmic
    thin = {"width": 1 if smooth else 2, "color": color}
    mode = "lines" if len(steps) > 1 else "markers"
    opacity = 0.35 if smooth else 1.0
    figure.add_scatter(x=steps, y=values, name=label, mode=mode, line=thin, opacity=opacity, showlegend=not smooth)
    if smooth:
        figure.add_scatter(
            x=steps,
            y=moving_mean(values, _WINDOW),
            name=label,
            mode="lines",
            line={"width": 2.5, "color": color},
            hoverinfo="skip",
        )


def _positive(steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    kept = [(step, value) for step, value in zip(steps, values, strict=True) if value > 0]
    return [step for step, _ in kept], [value for _, value in kept]
