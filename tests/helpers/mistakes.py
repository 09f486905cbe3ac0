"""Mistakes of custom components, one in each class or function. `test_extending.py` holds the message of each."""

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import torl
from torl import EstimatorInputs, Grade, Group, LossInputs, Outcome, OutcomeStatus, TokenAdvantages
from torl.components.environments import Environment, EnvironmentSession, Message, Reply

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class Calculator(torl.Tool):
    description = "Calculates."
    parameters = NO_PARAMETERS

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.OK, str(1 / arguments["divisor"]))


class RunsProgram(Calculator):
    parameters = MappingProxyType(
        {
            "type": "object",
            "properties": {"code": {"type": "integer"}, "program": {"type": "string"}},
            "required": ["code", "program"],
        }
    )


class AnyArguments(Calculator):
    parameters = MappingProxyType({"type": "object"})


class TextOrNothing(Calculator):
    parameters = MappingProxyType(
        {"type": "object", "properties": {"code": {"type": ["string", "null"]}, "other": True}, "required": ["code"]}
    )


def run_program(program: str, seed: int = 0) -> str:
    """Run a program."""
    return program * seed


def run_code(code: str, seed: int = 0) -> str:
    """Run a program."""
    return code * seed


class WithoutCall(torl.Tool):
    description = "Does nothing."
    parameters = NO_PARAMETERS


class NotAsync(torl.Tool):
    description = "Forgets `async`."
    parameters = NO_PARAMETERS

    def call(self, arguments: Mapping[str, Any]) -> Outcome:  # type: ignore[override]
        return Outcome(OutcomeStatus.OK, "")


class ReturnsText(torl.Tool):
    description = "Returns a str."
    parameters = NO_PARAMETERS

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return "text"  # type: ignore[return-value]


class ReturnsNone(torl.Tool):
    description = "Returns None."
    parameters = NO_PARAMETERS

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        pass  # type: ignore[return-value]


class WithoutDescription(torl.Tool):
    parameters = NO_PARAMETERS

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.OK, "")


class StartFails(Calculator):
    async def start(self, context: torl.RunContext) -> None:
        raise OSError("no such device")


class SharedOptions(Calculator):
    def __init__(self, **options: Any) -> None:
        self.options = options


class Precise(Calculator):
    def __init__(self, digits: int = 3) -> None:
        if digits > 9:
            raise OverflowError("too many digits")
        self.digits = digits


class Mistaken(torl.Reward):
    """Returns the result of `grades`, which each mistake defines."""

    async def grade(self, group: Group) -> Sequence[Grade]:
        return self.grades(group)  # type: ignore[no-any-return, attr-defined]


class TooFew(Mistaken):
    def grades(self, group: Group) -> Any:
        return [Grade(1.0, True, None)]


class NotANumber(Mistaken):
    def grades(self, group: Group) -> Any:
        return [Grade(float("nan"), True, None) for _ in group.trajectories]


class OtherParts(Mistaken):
    def grades(self, group: Group) -> Any:
        return [Grade(1.0, True, None, parts={"answer": 1.0, "length": 0.5}) for _ in group.trajectories]


class Dictionaries(Mistaken):
    def grades(self, group: Group) -> Any:
        return [{"reward": 1.0} for _ in group.trajectories]


class OneNumber(Mistaken):
    def grades(self, group: Group) -> Any:
        return 1.0


class RaisesKeyError(Mistaken):
    def grades(self, group: Group) -> Any:
        return group.prompt.problem.metadata["level"]


def wrong_shape(rewards: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(rewards.rewards_N.astype(np.float32))


def wrong_dtype(rewards: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(np.zeros(len(rewards.mask_M)))  # type: ignore[arg-type]


def infinite(rewards: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(np.full(len(rewards.mask_M), np.inf, dtype=np.float32))


def an_array(rewards: EstimatorInputs) -> TokenAdvantages:
    return rewards.broadcast_to_tokens(rewards.totals)  # type: ignore[return-value]


def by_level(rewards: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(rewards.levels)  # type: ignore[attr-defined]


def a_tensor(inputs: LossInputs) -> Any:
    return -inputs.log_ratio().exp() * inputs.advantages


def one_value(batch: torl.BatchTokens) -> Any:
    return np.ones(1, np.float32)


@torl.requires(batch_values=one_value)
def with_one_value(inputs: LossInputs) -> Any:
    return None


def without_inputs() -> Any:
    return None


def float_estimate(inputs: LossInputs) -> Any:
    return 0.0


def question(member: torl.ScoredTrajectory, group: torl.ScoredGroup) -> Any:
    return "How?"


def neither_yes_nor_no(group: torl.ScoredGroup) -> Any:
    return None


def the_same_twice(group: torl.ScoredGroup) -> Any:
    return [group.members[0], group.members[0]]


def numbers(group: torl.ScoredGroup) -> Any:
    return [0, 1]


def negative_weights(member: torl.ScoredTrajectory) -> Any:
    return np.full(len(member.trajectory), -1.0)


def one_weight(sampled_tokens_N: Any) -> Any:
    return np.ones(1)


class NoCalls(torl.Format):
    """Parses calls to text."""

    name = "no_calls"

    def stop_condition(self) -> torl.StopCondition:
        return torl.StopCondition.marker(b"</call>")

    def parse_calls(self, turn: torl.Turn) -> Any:
        return [turn.text]

    def render_observation(self, turn: torl.Turn, outcomes: Sequence[Outcome], *_: Any) -> Any:
        return outcomes[0]


class Room(Environment):
    def session(self, problem: torl.Problem, seed: int) -> "RoomSession":
        return RoomSession()


class DescribedAsJson(Room):
    @property
    def tools(self) -> Any:
        return {"look": {"description": "Looks.", "parameters": NO_PARAMETERS}}


class RoomSession(EnvironmentSession):
    async def step(self, message: Message) -> Reply:
        return "You see a door."  # type: ignore[return-value]

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        return {"score": "high"}  # type: ignore[dict-item]


class Counts(torl.Agent):
    async def run(self, problem: torl.Problem, url: str) -> str | None:
        return 7  # type: ignore[return-value]


def cut_off(count: int = 3) -> Any:
    """Yield one problem, then raise."""
    yield torl.Problem("p", "?", "1")
    raise ValueError("the file is cut off")


def two_arguments(trajectory: torl.Trajectory, group: Group) -> float:
    return len(trajectory) / len(group.trajectories)


def two_numbers(trajectory: torl.Trajectory, limit: float) -> float:
    return float(len(trajectory) < limit)


def exiting_reward(trajectory: torl.Trajectory) -> float:
    sys.exit(3)


def text_reward(trajectory: torl.Trajectory) -> Any:
    return "1.0"


def infinite_reward(trajectory: torl.Trajectory) -> float:
    return float("nan")


def mask_for_each_token(member: torl.ScoredTrajectory) -> Any:
    return [True, False]


def dictionaries() -> Any:
    return [{"id": "p", "problem": "?", "answer": "1"}]


def number_as_answer() -> Any:
    yield torl.Problem("p", "?", 1)  # type: ignore[arg-type]


def no_prompt(problem: torl.Problem) -> Any:
    return {"prompt": 1}
