"""Rewards made of parts: functions and other rewards, each with a weight."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from torl.base.component import RunContext
from torl.base.errors import RewardError
from torl.base.guard import InvalidResultError, describe
from torl.base.options import Choice, ChosenFrom, Section, class_made_by, named_by_key
from torl.base.removed_settings import RENAMED_REWARDS
from torl.base.runtime.processes.supervision import call_function
from torl.base.types import Grade, Group, Trajectory
from torl.components.rewards.reward import Reward

PARTS: Mapping[str, Callable[..., Any] | str] = MappingProxyType(
    {
        "math": "torl.components.rewards.math:MathReward",
        "tests": "torl.components.rewards.tests:TestsReward",
        "judge": "torl.components.rewards.judge:JudgeReward",
        "environment": "torl.components.rewards.reward:EnvironmentReward",
        "exact_match": "torl.recipes.search_r1:ExactMatchReward",
        "expected_calls": "torl.recipes.toolrl:ExpectedCallsReward",
        "turn_scores": "torl.recipes.agent_prm:TurnScores",
        "artist": "torl.recipes.artist:ArtistReward",
        "overlong": "torl.recipes.dapo:Overlong",
        "call_bonus": "torl.recipes.retool:CallBonus",
        "failed_code": "torl.recipes.torl:failed_code",
        "tag_order": "torl.recipes.toolrl:tag_order",
        "malformed_turn": "torl.recipes.gtpo:malformed_turn",
    }
)
"""The rewards that can be a part, by the names that a configuration calls them."""

REWARDS: Mapping[str, Callable[..., Any] | str] = MappingProxyType(
    {"rubric": "torl.components.rewards.rubric:Rubric", **PARTS}
)
"""The rewards by the names that a configuration calls them."""


class PartOptions(Section):
    """Options of every part of a rubric."""

    weight: float = 1.0
    """Factor of the part's reward and turn rewards."""


def count_positional(target: Any) -> int:
    """Return the number of arguments that torl passes to a reward before its options: a function takes a trajectory."""
    return 0 if makes_reward(target) else 1


def makes_reward(target: Any) -> bool:
    """Whether a choice is a class of rewards, or a function that returns a reward; else it is a reward function."""
    return isinstance(target, type) or issubclass(class_made_by(target), Reward)


def check_value(value: object, trajectory: Trajectory) -> None:
    """Raise `InvalidResultError` if a reward function returned neither a finite number nor a `Grade`."""
    if isinstance(value, Grade):
        return
    try:
        is_finite = not isinstance(value, str | bytes) and math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # not a number, or an array of several
        is_finite = False
    if not is_finite:
        raise InvalidResultError(f"expected a finite number or a Grade, got {describe(value)}")


REWARD_VALUE = float | Grade
"""The type of what a reward function returns."""
PART = ChosenFrom(
    PARTS,
    "reward part",
    positional_count=count_positional,
    common_options=lambda _: PartOptions,
    bases=(Reward,),
    functions=True,
    returns=REWARD_VALUE,
    check=check_value,
    renamed=RENAMED_REWARDS,
)


class RubricOptions(Section):
    """Options of the reward "rubric"."""

    parts: Annotated[dict[str, Annotated[Choice[Any], PART]], named_by_key(PART)] = Field(
        default={"answer": {"name": "math"}}, validate_default=True
    )
    """Parts by name, graded in this order. Each is a reward, or a function of a trajectory, and has a `weight`. A part
    without a name is named by its key. A table replaces the default; an option such as
    `--reward.parts.failed_code.weight 0.5` keeps it."""
    correct_threshold: float = 1.0
    """Reward from which a response counts as correct, if all parts are plain numbers."""

    def check_within(self, config: Any) -> None:
        for name, part in self.parts.items():
            try:
                part.options.check_within(config)
            except ValueError as error:
                raise ValueError(f"parts.{name}: {error}") from error


class FunctionPart:
    """A part that is a function of a trajectory, which returns a number or a `Grade`.

    A coroutine function runs in the event loop, any other in a thread.
    """

    def __init__(self, choice: Choice[Callable[[Trajectory], Any]]) -> None:
        self._function = choice.bind()

    async def grade(self, group: Group) -> Sequence[Grade | float]:
        """Call the function once for each trajectory."""
        return await asyncio.gather(*map(self._value, group.trajectories))

    async def _value(self, trajectory: Trajectory) -> Grade | float:
        value = await call_function(self._function, trajectory)
        return value if isinstance(value, Grade) else float(value)


@dataclass(frozen=True, slots=True)
class _Part:
    reward: Reward | FunctionPart
    weight: float


class Rubric(Reward):
    """The weighted sum of parts.

    Each part sees the grades of the parts before it (`Group.grades`). A response is correct if a part finds its answer
    correct, its format is valid unless a part finds it invalid, and its answer is the first that a part finds.
    """

    def __init__(self, options: RubricOptions | None = None) -> None:
        self.options = options or RubricOptions()
        self._parts: dict[str, _Part] = {}
        for name, choice in self.options.parts.items():
            reward = choice.make() if makes_reward(choice.target) else FunctionPart(choice)
            common = choice.common_options
            self._parts[name] = _Part(reward, common.weight if isinstance(common, PartOptions) else 1.0)

    async def grade(self, group: Group) -> list[Grade]:
        """Return one grade for each trajectory; raise `RewardError` if a part fails."""
        drafts = [_Draft() for _ in group.trajectories]
        for name, part in self._parts.items():
            graded = replace(group, grades=tuple(draft.grade(self.options.correct_threshold) for draft in drafts))
            values = await part.reward.grade(graded)
            if len(values) != len(drafts):
                raise RewardError(
                    f"reward.parts.{name} gave {len(values)} grades for {len(drafts)} trajectories; expected one each"
                )
            drafts = [draft.add(name, part.weight, value) for draft, value in zip(drafts, values, strict=True)]
        return [draft.grade(self.options.correct_threshold) for draft in drafts]

    async def start(self, context: RunContext) -> None:
        for part in self._rewards():
            await part.start(context)

    async def check(self) -> None:
        for part in self._rewards():
            await part.check()

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for part in self._rewards():
                stack.push_async_callback(part.close)

    def metrics(self) -> Mapping[str, float]:
        return {count: value for part in self._rewards() for count, value in part.metrics().items()}

    def _rewards(self) -> list[Reward]:
        return [part.reward for part in self._parts.values() if not isinstance(part.reward, FunctionPart)]


@dataclass(frozen=True, slots=True)
class _Draft:
    """The grade of a trajectory while its parts are added."""

    parts: Mapping[str, float] = field(default_factory=dict)
    turn_rewards: tuple[float, ...] = ()
    verdict: Grade | None = None

    def add(self, name: str, weight: float, value: Grade | float) -> "_Draft":
        grade = value if isinstance(value, Grade) else Grade(value)
        shares = {f"{name}/{part}": share for part, share in grade.parts.items()} or {name: grade.reward}
        turns = tuple(weight * reward for reward in grade.turn_rewards)
        if self.turn_rewards and turns:
            turns = tuple(one + other for one, other in zip(self.turn_rewards, turns, strict=True))
        verdict = self.verdict
        if isinstance(value, Grade):
            verdict = value if verdict is None else _combine(verdict, value)
        parts = {**self.parts, **{part: weight * share for part, share in shares.items()}}
        return _Draft(parts, turns or self.turn_rewards, verdict)

    def grade(self, correct_threshold: float) -> Grade:
        reward = sum(self.parts.values())
        verdict = self.verdict or Grade(reward, reward >= correct_threshold and bool(self.parts))
        return replace(verdict, reward=reward, parts=self.parts, turn_rewards=self.turn_rewards)


def _combine(one: Grade, other: Grade) -> Grade:
    correct = one.correct or other.correct
    return replace(
        one,
        correct=correct,
        answer=other.answer if one.answer is None else one.answer,
        failure=None if correct else one.failure or other.failure,
        detail=one.detail or other.detail,
        valid_format=one.valid_format and other.valid_format,
    )


def make_reward(choice: Choice[Reward]) -> Reward:
    """Return the reward that a configuration chooses; a function becomes the only part of a rubric."""
    if makes_reward(choice.target):
        return choice.make()
    name = choice.name.rpartition(":")[2].rpartition(".")[2]
    return Rubric(RubricOptions(parts={name: replace(choice, common_options=PartOptions())}))
