"""ARTIST's reward for mathematics: the answer, the tags of the response, and how much of its code ran well."""

import re

from torl.options import Section
from torl.rewards.base import Reward
from torl.text.tagged_answers import tagged_answer
from torl.types import Grade, Group, Trajectory

TAGS = ("think", "python", "output", "answer")
_TAG = re.compile(rf"<(/?)({'|'.join(TAGS)})>")


class ArtistOptions(Section):
    """Options of the reward "artist"."""

    correct: float = 2.0
    """Reward of an answer that is the reference, letter by letter."""
    wrong: float = 0.0
    """Reward of any other, or of none."""
    tag: float = 0.125
    """Added for each of <think>, <python>, <output> and <answer> that the response opens and closes."""
    order: float = 0.5
    """Added if all four are there, none within another, first found in this order, and <answer> is the last."""
    tool: float = 1.0
    """Added, times the share of calls that ended well; nothing where there was none."""


class ArtistReward(Reward):
    """Pays for the last <answer>, for the form of the response and for code that runs (ARTIST, section 3.1).

    Parts of a grade: "answer", "tags", "order", "tool". The form is that of the whole text, with the observations.
    """

    def __init__(self, options: ArtistOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ArtistOptions()

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by itself."""
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        options, calls = self.options, trajectory.tool_calls
        answer = tagged_answer(trajectory.answer_text)
        correct = answer == trajectory.prompt.problem.answer.strip()
        ordered = is_ordered(trajectory.text)
        parts = {
            "answer": options.correct if correct else options.wrong,
            "tags": options.tag * sum(f"<{tag}>" in trajectory.text and f"</{tag}>" in trajectory.text for tag in TAGS),
            "order": options.order * ordered,
            "tool": options.tool * sum(call.outcome.ok for call in calls) / max(1, len(calls)),
        }
        return Grade(sum(parts.values()), correct, answer, parts=parts, valid_format=ordered)


def is_ordered(text: str) -> bool:
    """Whether all tags are there, each closed before another opens, first found in their order, the answer last.

    Source: ARTIST, section 3.1 ("strict"), which leaves open what may stand between: further turns may, here.
    """
    marks = _TAG.findall(text)
    opened = [name for slash, name in marks if not slash]
    pairs = [mark for name in opened for mark in (("", name), ("/", name))]
    return marks == pairs and tuple(dict.fromkeys(opened)) == TAGS and opened[-1:] == ["answer"]
