"""The trajectory of a step that is worth a look, as lines for a terminal. Model output is untrusted."""

from collections.abc import Sequence
from typing import NamedTuple

from torl.base.types import ScoredGroup, ScoredTrajectory
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
