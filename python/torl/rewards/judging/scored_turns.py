"""The boxed reward, and pay for each turn by how likely it makes success (AgentPRM)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from torl.component import RunContext
from torl.options import PositiveFloat, PositiveInt
from torl.rewards.base import Reward
from torl.rewards.boxed import BoxedOptions, BoxedReward
from torl.rewards.judging.chat_model import JudgeClient
from torl.rewards.judging.turn_scores import FunctionScorer, JudgeScorer, TurnScorer, read_score
from torl.types import Grade, Group, Trajectory


class ScoredTurnsOptions(BoxedOptions):
    """Options of the reward "scored_turns": those of "boxed", and who scores turns: a function, or a model at a URL."""

    function: str | None = None
    """From a `Trajectory` to one number for each of its turns: package.module:name."""
    url: str | None = None
    """Address of a judge that answers as OpenAI's does (http://host:8000/v1), once for each turn."""
    model: str | None = None
    """Name of the judging model there."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key, if it needs one."""
    judge_timeout_seconds: PositiveFloat = 30.0
    """Time of one question; a turn whose question takes longer is not paid."""
    judge_max_concurrent: PositiveInt = 32
    """Questions that are asked at once."""
    turn_reward: Literal["promise", "progress"] = "promise"
    """What a turn is paid: its number, or by how much that is more than the last turn's."""
    turn_weight: float = 1.0
    """What it is multiplied by."""

    @model_validator(mode="after")
    def _one_scores(self) -> Self:
        if (self.function is None) == (self.url is None):
            raise ValueError("turns are scored by a function or by a model at a url: set one of function and url")
        if (self.url is None) != (self.model is None):
            raise ValueError("url and model belong together: where the judge is, and its name there")
        return self


class ScoredTurnsReward(Reward):
    """Pays for the answer as "boxed" does, and for each turn what a process reward model says of it.

    A turn's number is the chance that the task is solved after it (AgentPRM: arXiv 2502.10325, section 2.1; "promise"
    in arXiv 2511.08325, equation 2), "progress" how it changed (equation 8 there); the first turn's is all progress. A
    turn whose number cannot be had is paid nothing and counted; a judge that fails many times in a row stops the run.
    """

    def __init__(self, options: ScoredTurnsOptions) -> None:
        """Take the options of a configuration.

        Raises:
            RewardError: there is no such function.
        """
        self._options = options
        self._rules = BoxedReward(options)
        self._scores: TurnScorer
        if options.function is not None:
            self._scores = FunctionScorer(options.function)
        else:
            seconds, concurrency = options.judge_timeout_seconds, options.judge_max_concurrent
            place, name = options.url or "", options.model or ""
            self._scores = JudgeScorer(JudgeClient(place, name, read_score, options.api_key_env, seconds, concurrency))

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by rules, and turn by turn; all at once.

        Raises:
            RewardError: the graders, the judge or the function are broken.
        """
        asked = asyncio.gather(*map(self._scores.score, group.trajectories))
        grades, scores = await asyncio.gather(self._rules.grade(group), asked)
        given = zip(group.trajectories, grades, scores, strict=True)
        return [self._with_turns(trajectory, grade, of_turns) for trajectory, grade, of_turns in given]

    async def start(self, context: RunContext) -> None:
        """Start the graders, and ask the judge."""
        await self._rules.start(context)
        await self._scores.start()

    async def close(self) -> None:
        """End both."""
        await self._rules.close()
        await self._scores.close()

    def metrics(self) -> Mapping[str, float]:
        """What the graders count, and questions that the judge was asked and failed on."""
        return {**self._rules.metrics(), **self._scores.metrics()}

    def _with_turns(self, trajectory: Trajectory, grade: Grade, scores: Sequence[float | None]) -> Grade:
        earned = compute_turn_rewards(scores, self._options.turn_reward)
        before = grade.turn_rewards or (0.0,) * len(trajectory.turns)
        turns = tuple(paid + self._options.turn_weight * more for paid, more in zip(before, earned, strict=True))
        return replace(grade, turn_rewards=turns)


def compute_turn_rewards(scores: Sequence[float | None], pays: Literal["promise", "progress"]) -> list[float]:
    """What each turn earns; nothing where there is no number, and progress is counted from the last that there is."""
    paid, last = [], 0.0
    for score in scores:
        paid.append(0.0 if score is None else score - last if pays == "progress" else score)
        last = last if score is None else score
    return paid
