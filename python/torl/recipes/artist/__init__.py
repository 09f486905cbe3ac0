"""ARTIST for mathematics: its prompt template, its format and its reward."""

import re
from dataclasses import replace
from typing import ClassVar

from torl import Grade, Group, Problem, Reward, TaggedFormat, Trajectory, chatml, find_tagged_answer

# In the words of section 3.1; the prompt of appendix A is another.
TEMPLATE = (
    "Solve the problem below. Reason between <think> and </think>. Any code intended for execution is placed between "
    "<python> and </python>; it is executed by a Python interpreter, and the output is returned between <output> and "
    "</output>. Give the final answer between <answer> and </answer>.\n\n{problem}"
)
TAGS = ("think", "python", "output", "answer")
_TAG = re.compile(rf"<(/?)({'|'.join(TAGS)})>")


def template(problem: Problem, system: str = "") -> str:
    """Return a prompt for ARTIST's format in ChatML: thoughts in <think>, code in <python>, the answer in <answer>.

    Args:
        system: System message; none if empty.
    """
    return chatml(replace(problem, question=TEMPLATE.replace("{problem}", problem.question, 1)), system)


class ArtistFormat(TaggedFormat):
    """ARTIST's format (section 3.1): `<think>`, `<python>`, `<output>` and finally `<answer>`.

    Code runs at `</python>`. The line breaks around the tags of the result are torl's: the paper does not give them.
    `rollout.stop = ["</answer>"]` ends a response with its answer.
    """

    name: ClassVar[str] = "artist"
    tags = ("<python>", "</python>")
    result_tags = ("<output>", "</output>")


class ArtistReward(Reward):
    """Rewards the last <answer>, the form of the response, and code that succeeds (section 3.1).

    Parts of a grade:

    - "answer": 2 for an answer that equals the reference, character by character.
    - "tags": 0.125 for each of <think>, <python>, <output> and <answer> that the response opens and closes.
    - "order": 0.5 if all four occur, none within another, first found in this order, and <answer> is the last.
    - "tool": the fraction of the calls that succeeded, 0 without calls.

    Tags are those of the whole text, with the observations.
    """

    async def grade(self, group: Group) -> list[Grade]:
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        calls = trajectory.tool_calls
        answer = find_tagged_answer(trajectory.answer_text)
        correct = answer == trajectory.prompt.problem.answer.strip()
        ordered = is_ordered(trajectory.text)
        parts = {
            "answer": 2.0 if correct else 0.0,
            "tags": 0.125 * sum(f"<{tag}>" in trajectory.text and f"</{tag}>" in trajectory.text for tag in TAGS),
            "order": 0.5 * ordered,
            "tool": sum(call.outcome.ok for call in calls) / max(1, len(calls)),
        }
        return Grade(sum(parts.values()), correct, answer, parts=parts, valid_format=ordered)


def is_ordered(text: str) -> bool:
    """Whether all tags occur, each closed before another opens, first found in their order, the answer last.

    Source: section 3.1 ("strict"), which does not say what may be between them. Further turns may, here.
    """
    marks = _TAG.findall(text)
    opened = [name for slash, name in marks if not slash]
    pairs = [mark for name in opened for mark in (("", name), ("/", name))]
    return marks == pairs and tuple(dict.fromkeys(opened)) == TAGS and opened[-1:] == ["answer"]
