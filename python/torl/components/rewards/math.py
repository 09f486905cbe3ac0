r"""The outcome reward of mathematics: the answer, usually the last \boxed{...}, compared with the reference."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from torl.base.component import RunContext
from torl.base.options import Choice, ChosenFrom, PositiveFloat, Section, default_choice
from torl.base.types import FinishReason, Grade, Group, Trajectory
from torl.components.grading.grader import ClusterGrader, Grader
from torl.components.grading.verdict import Verdict, compare_exactly
from torl.components.rewards.reward import Reward
from torl.components.text.answers import find_answer

"""Minimum number of grader processes, so that one slow pair does not block all others."""

ANSWER_FORMATS: Mapping[str, Callable[..., bool] | str] = MappingProxyType(
    {
        "orz": "torl.recipes.orz:has_answer_format",
        "zerotir": "torl.recipes.zerotir:has_answer_format",
    }
)
"""Response formats that a correct answer can be required to have: functions of the text."""


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last complete \boxed{...}, or None."""
    box = find_answer(text)
    return None if box is None else box.text


ANSWER_FINDERS: Mapping[str, Callable[..., str | None] | str] = MappingProxyType(
    {"boxed": boxed_answer, "dapo": "torl.recipes.dapo:find_answer_line"}
)
"""Functions that return the answer in the text of a response, or None."""

AnswerFinderChoice = Annotated[
    Choice[Callable[[str], str | None]], ChosenFrom(ANSWER_FINDERS, "answer finder", "boxed", positional_count=1)
]
AnswerFormatChoice = Annotated[
    Choice[Callable[[str], bool]], ChosenFrom(ANSWER_FORMATS, "answer format", positional_count=1)
]


class MathOptions(Section):
    """Options of the reward "math"."""

    correct: float = 1.0
    """Reward of a correct final answer."""
    wrong: float = -1.0
    """Reward of a wrong or missing final answer."""
    answer: AnswerFinderChoice = default_choice("boxed")
    """Function of the text that finds the answer. "boxed": the last complete box; "dapo": the last "Answer:" of the
    last 300 characters."""
    require_format: AnswerFormatChoice | None = None
    """Format that a correct answer must have to be rewarded, in a response that ended by itself or at a stop string: a
    function of its text. "orz": a box in <answer>; "zerotir": also each tag once, and </think>. Unset requires none."""
    exact: bool = False
    """Treat decimals as exact numbers, so that 1.41421356 is not the square root of 2, nor 0.33333333 a third. By
    default, six decimals decide, and four digits of a fraction. A reference with decimals is always compared so."""
    grader_timeout_seconds: PositiveFloat = 2.0
    """CPU time limit of the grader for one pair of answers."""


class MathReward(Reward):
    r"""Rewards the answer of the sampled text, by default its last complete \boxed{...}, if it equals the reference."""

    def __init__(self, options: MathOptions | None = None) -> None:
        self.options = options or MathOptions()
        self.grader: Grader | ClusterGrader = Grader(
            None, self.options.grader_timeout_seconds, exact=self.options.exact
        )
        self._find = self.options.answer.bind()
        required = self.options.require_format
        self._has_format = None if required is None else required.bind()

    async def grade(self, group: Group) -> list[Grade]:
        """Return one grade for each trajectory, graded concurrently."""
        return list(await asyncio.gather(*map(self._grade, group.trajectories)))

    async def start(self, context: RunContext) -> None:
        """Start the grader's processes, on all nodes of a cluster."""
        cluster = context.cluster
        if cluster.is_remote:
            self.grader = ClusterGrader(None, self.options.grader_timeout_seconds, exact=self.options.exact)
        if isinstance(self.grader, ClusterGrader):
            await self.grader.start(cluster)
        else:
            await asyncio.to_thread(self.grader.start)

    async def close(self) -> None:
        if isinstance(self.grader, ClusterGrader):
            await self.grader.close()
        else:
            await asyncio.to_thread(self.grader.close)

    async def _grade(self, trajectory: Trajectory) -> Grade:
        answer = self._find(trajectory.answer_text)
        verdict = Verdict(correct=False)
        if answer is not None:
            reference = trajectory.prompt.problem.answer
            simple = compare_exactly(reference, answer, exact=self.options.exact)  # needs no process
            verdict = simple or await self.grader.grade_async(reference, answer, shortcuts=False)
        valid = self._has_format is None or (
            trajectory.finish_reason is FinishReason.STOP and self._has_format(trajectory.answer_text)
        )
        reward = self.options.correct if verdict.correct and valid else self.options.wrong
        return Grade(reward, verdict.correct, answer, verdict.failure, valid_format=valid)
