"""The live part of the console on a terminal: curves, rates, where the time goes, a trajectory, and bars of waits."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import rich.console
import rich.progress
import rich.text

from torl.base.types import ScoredGroup, ScoredTrajectory
from torl.run.records import metric_names as names
from torl.run.records.behaviors import recovers

_REPLACEMENT = "\N{MIDDLE DOT}"


class Highlight(NamedTuple):
    """A trajectory and the accuracy of its group."""

    member: ScoredTrajectory
    accuracy: float


def choose_highlight(groups: Sequence[ScoredGroup]) -> Highlight | None:
    """Return the most interesting trajectory: a correct one that recovered from an error, or the rarest success.

    Correct trajectories with tool calls come before others. Without a correct one, the first with calls is chosen.
    """
    found = [Highlight(member, group.accuracy) for group in groups for member in group.members]
    return max(found, key=_interest, default=None)


def _interest(highlight: Highlight) -> tuple[bool, bool, bool, bool, float]:
    (trajectory, grade), accuracy = (highlight.member.trajectory, highlight.member.grade), highlight.accuracy
    has_calls = bool(trajectory.tool_calls)
    return recovers(trajectory, grade), grade.correct and has_calls, grade.correct, has_calls, -accuracy


def highlight_lines(step: int, highlight: Highlight, width: int, height: int) -> list[str]:
    """Return the verdict, the question and the end of the response, in at most `height` lines of `width` characters.

    Characters that control a terminal or hide text are replaced.
    """
    trajectory, grade = highlight.member.trajectory, highlight.member.grade
    problem = trajectory.prompt.problem
    verdict = "right" if grade.correct else "wrong"
    calls = "".join(f", call {call.outcome.status.value}" for call in trajectory.tool_calls[:4])
    head = f"{verdict} in step {step}, {highlight.accuracy:.0%} of its group are right{calls}"
    body = [f"  {line}" for line in trajectory.text.splitlines() if line.strip()]
    lines = [head, f"  {problem.question.strip()}", *body[-max(0, height - 2) :]]
    return [_printable(line)[:width] for line in lines[:height]]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else _REPLACEMENT for character in text)


MAX_STEPS: Final = 400
"""Number of steps that the curves remember."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_PHASES: Final = (names.TIME_ROLLOUT, names.TIME_REWARD, names.TIME_LEARN, names.TIME_SYNC)
_MAX_HIGHLIGHT: Final = 9
_RESERVED: Final = 6  # lines of the terminal for the table of steps and for bars


class LiveScreen(rich.progress.Progress):
    """Bars of waits below curves of metrics. Printed lines appear above the screen."""

    def __init__(self, console: rich.console.Console) -> None:
        """Prepare the screen on a console; `start` shows it."""
        self._curves: dict[names.Metric, deque[float]] = {}
        self._times: dict[str, float] = {}
        self._seconds: deque[float] = deque(maxlen=MAX_STEPS)
        self._rates: list[str] = []
        self._highlight: tuple[int, Highlight] | None = None
        super().__init__(
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[done]}"),
            rich.progress.TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def add_step(
        self,
        step: int,
        steps: int,
        metrics: Mapping[str, float],
        columns: Sequence[names.Metric],
        groups: Sequence[ScoredGroup] = (),
    ) -> None:
        """Add a step to the curves.

        Args:
            step: Number of finished steps.
            steps: Number of steps of the run.
            metrics: Metrics of the step.
            columns: Metrics that have a curve.
            groups: Groups that were played.
        """
        for metric in columns:
            if math.isfinite(metrics.get(metric, math.nan)):
                self._curves.setdefault(metric, deque(maxlen=MAX_STEPS)).append(metrics[metric])
        self._times = {name: value for name, value in metrics.items() if name in (names.TIME_STEP, *_PHASES)}
        self._seconds.extend(value for name, value in self._times.items() if name == names.TIME_STEP)
        self._rates = list(_rates(metrics, groups))
        if self._seconds and steps > step:
            left = (steps - step) * sum(self._seconds) / len(self._seconds)
            self._rates.append(f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left")
        found = choose_highlight(groups)
        if found is not None:
            self._highlight = step, found

    def get_renderables(self) -> Iterable[rich.console.RenderableType]:
        """Yield the curves, if there are any, and the bars."""
        if self._curves:
            yield rich.text.Text("\n".join(self.lines(self.console.width)), no_wrap=True, overflow="crop")
        yield from super().get_renderables()

    def lines(self, width: int) -> list[str]:
        """Return the curves and the times as lines of at most `width` characters."""
        found = []
        for metric, values in self._curves.items():
            head = f"{metric.short:>8} {metric.show(values[-1]):>9} "
            found.append((head + sparkline(list(values), width - len(head) - 1))[:width])
        if found and (total := self._times.get(names.TIME_STEP)):
            shares = [f"{each.short} {self._times[each] / total:.0%}" for each in _PHASES if each in self._times]
            found.append(f"{'time':>8} {total:>7.1f} s {', '.join(shares)}"[:width])
        if self._rates:
            found.append(f"{'rates':>8} {', '.join(self._rates)}"[:width])
        height = min(_MAX_HIGHLIGHT, self.console.height - len(found) - _RESERVED)
        if self._highlight is not None and height > 2:
            step, highlight = self._highlight
            found += highlight_lines(step, highlight, width, height)
        return found


def _rates(metrics: Mapping[str, float], groups: Sequence[ScoredGroup]) -> Iterator[str]:
    """Yield tokens and calls a second while episodes were played, and tokens a second of the optimizer steps."""
    played = [each for group in groups for member in group.members for each in member.episode_trajectories]
    if played and (seconds := metrics.get(names.TIME_ROLLOUT)):
        sampled = sum(int(each.trajectory.loss_mask_T.sum()) for each in played)
        yield f"{sampled / seconds:,.0f} sampled tokens/s"
        yield f"{sum(len(each.trajectory.tool_calls) for each in played) / seconds:,.1f} calls/s"
    if (tokens := metrics.get(names.LEARNED_TOKENS)) and (seconds := metrics.get(names.TIME_LEARN)):
        yield f"{tokens / seconds:,.0f} learned tokens/s"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return values as bars of eight heights, from the smallest to the largest; more than `width` are averaged."""
    if width < 1 or not values:
        return ""
    count = min(width, len(values))
    edges = [index * len(values) // count for index in range(count + 1)]
    means = [sum(values[start:stop]) / (stop - start) for start, stop in pairwise(edges)]
    low, high = min(means), max(means)
    span = high - low
    return "".join(_BARS[min(7, int(8 * (mean - low) / span))] if span else _BARS[0] for mean in means)
