"""The boxed reward with a judge behind it: what rules find wrong is right if a model says so (ZeroTIR's xVerify)."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from torl.component import RunContext
from torl.options import PositiveFloat, PositiveInt
from torl.rewards.base import Reward
from torl.rewards.boxed import BoxedOptions, BoxedReward
from torl.rewards.judging.judge import Judge
from torl.types import Grade, Group, Trajectory


class JudgedOptions(BoxedOptions):
    """Options of the reward "judged": those of "boxed", and who judges."""

    url: str
    """OpenAI-compatible address of the judge: http://host:8000/v1."""
    model: str
    """Name of the judging model there."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key, if it needs one."""
    judge_timeout_seconds: PositiveFloat = 30.0
    """Time of one question; one that takes longer is not paid."""
    judge_max_concurrent: PositiveInt = 32
    """Questions that are asked at once."""


class JudgedReward(Reward):
    """The larger of two verdicts: that of the rules, and where they say wrong, that of a model.

    The part "judge" is what a response earns by the model alone. A judge that fails pays nothing and is counted; one
    that fails many times in a row stops the run.
    """

    def __init__(self, options: JudgedOptions) -> None:
        """Take the options of a configuration."""
        self._options = options
        self._rules = BoxedReward(options)
        self._judge = Judge(
            options.url, options.model, options.api_key_env, options.judge_timeout_seconds, options.judge_max_concurrent
        )

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by rules, then those that are wrong by the judge, all at once.

        Raises:
            RewardError: the graders or the judge are broken.
        """
        grades = await self._rules.grade(group)
        pairs = zip(group.trajectories, grades, strict=True)
        return list(await asyncio.gather(*(self._judged(trajectory, grade) for trajectory, grade in pairs)))

    async def start(self, context: RunContext) -> None:
        """Start the graders, and ask the judge what anybody knows."""
        await self._rules.start(context)
        await self._judge.start()

    async def close(self) -> None:
        """End both."""
        await self._rules.close()
        await self._judge.close()

    def metrics(self) -> Mapping[str, float]:
        """Questions that the judge was asked, found right, and failed on."""
        return {**self._rules.metrics(), **self._judge.counts}

    async def _judged(self, trajectory: Trajectory, grade: Grade) -> Grade:
        problem = trajectory.prompt.problem
        parts = {**grade.parts, "judge": 0.0}
        if grade.correct or not grade.answer:
            return replace(grade, parts=parts)
        if not await self._judge.judge(problem.question, problem.answer, grade.answer):
            return replace(grade, parts=parts)
        if grade.valid_format:
            parts["judge"] = self._options.correct - self._options.wrong
            parts |= dict.fromkeys(parts.keys() & {"wrong_calls"}, 0.0)  # a comfort for answers that are not right
        return replace(grade, reward=sum(parts.values()), correct=True, failure=None, parts=parts)
