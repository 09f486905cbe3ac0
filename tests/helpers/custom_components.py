"""Custom components for torl: one of each kind that can be chosen by name. No module of torl knows this one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

import torl
from torl import (
    BatchTokens,
    EstimatorInputs,
    Grade,
    Group,
    LossInputs,
    MalformedCall,
    ObservationText,
    Outcome,
    OutcomeStatus,
    PolicyLossValues,
    Problem,
    ScoredGroup,
    ScoredTrajectory,
    StopCondition,
    StopReason,
    TokenAdvantages,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.base.types import Float32Array


class LineCounter(torl.StatefulTool):
    """Counts the lines of a text, and remembers over an episode how many it has counted."""

    description = "How many lines a text has."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
    speculative = True

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.started = 0

    async def start(self, context: torl.RunContext) -> None:
        self.started += 1

    def session(self, seed: int) -> "Counting":
        assert self.started == 1
        return Counting(self.first)

    def metrics(self) -> Mapping[str, float]:
        return {"starts": self.started}


@dataclass
class Counting(torl.ToolSession):
    total: int

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        if "import" in arguments["text"]:
            return Outcome(OutcomeStatus.ERROR, "ImportedError: no imports", "ImportedError", {"total": self.total})
        self.total += len(arguments["text"].splitlines())
        return Outcome(OutcomeStatus.OK, str(self.total), details={"total": self.total})

    def fork(self) -> Self:
        return type(self)(self.total)


class Counted(torl.Format):
    """Asks for the lines of the last block, after "```output"; the answer is in angle brackets."""

    name: ClassVar[str] = "counted"
    tools = ("counter",)

    def __init__(self, bracket: str = "<") -> None:
        self.bracket = bracket

    def stop_condition(self) -> StopCondition:
        return StopCondition.marker(b"```output")

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        if not turn.blocks:
            return [MalformedCall("NoText", "there is nothing to count")]
        return [ToolRequest("counter", {"text": turn.blocks[-1].code})]

    def speculative_call(self, code: str) -> ToolRequest | None:
        return ToolRequest("counter", {"text": code})

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> ObservationText:
        return f"\n{self.bracket}{outcomes[0].text}\n```\n"


class ShortAndTidy(torl.Reward):
    """Two parts, both by comparison within the group, and pay for every turn that calls a tool."""

    def __init__(self, bonus: float = 0.1) -> None:
        self.bonus = bonus

    async def grade(self, group: Group) -> list[Grade]:
        shortest = min(len(trajectory) for trajectory in group.trajectories)
        return [self._grade(trajectory, shortest) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory, shortest: int) -> Grade:
        answer = f"{len(trajectory)} tokens"
        parts = {"short": float(len(trajectory) == shortest), "tidy": -float("  " in trajectory.sampled_text)}
        turns = tuple(self.bonus * (turn.stop_reason is StopReason.CALL) for turn in trajectory.turns)
        return Grade(sum(parts.values()), parts["short"] > 0, answer, parts=parts, turn_rewards=turns)


def scaled(rewards: EstimatorInputs, scale: float = 1.0) -> TokenAdvantages:
    """Rewards less their mean over the step, times a number."""
    return TokenAdvantages(rewards.broadcast_to_tokens(scale * (rewards.totals - rewards.totals.mean())))


@torl.requires(reference=True, old_logprobs=True)
def early_code(rewards: EstimatorInputs, scale: float = 1.0, delta: float = 0.1) -> TokenAdvantages:
    """`scaled`, more for early code in short responses and for calls, and less far from the reference model."""
    assert rewards.old_logprobs_M is not None
    assert rewards.ref_logprobs_M is not None
    place_N = np.where(rewards.first_code < 0, 1.0, rewards.first_code / np.maximum(rewards.sampled_tokens, 1))
    bonus_N = delta * (rewards.calls + rewards.correct + rewards.parts["short"] - place_N)
    advantages_M = rewards.broadcast_to_tokens(scale * (rewards.totals - rewards.totals.mean()) + bonus_N)
    advantages_M += np.where(rewards.mask_M, 0.01 * (rewards.ref_logprobs_M - rewards.old_logprobs_M), 0)
    return TokenAdvantages(advantages_M)


def likelihood(inputs: LossInputs, weight: float = 1.0) -> PolicyLossValues:
    """-weight * A * logprob."""
    return PolicyLossValues.from_per_token(inputs, -weight * inputs.masked_advantages() * inputs.logprobs)


def most_uncertain(batch: BatchTokens, fraction: float = 0.2) -> Float32Array:
    """1 for the tokens of the batch with the highest entropy, 0 for others."""
    assert batch.entropies_K is not None
    return (batch.entropies_K >= np.quantile(batch.entropies_K, 1 - fraction)).astype(np.float32)


@torl.requires(reference=True, entropies=True, batch_values=most_uncertain)
def near_reference(inputs: LossInputs, fraction: float = 0.2, pull: float = 0.1) -> PolicyLossValues:
    """The policy gradient with the engine's importance ratio on the most uncertain tokens, near the reference model."""
    assert inputs.ref_logprobs is not None
    assert inputs.batch_values is not None
    ratio = inputs.log_ratio_to(inputs.rollout_logprobs).exp()
    distance = inputs.log_ratio_to(inputs.ref_logprobs).square()
    per_token = inputs.batch_values * (pull * distance - ratio * inputs.masked_advantages())
    return PolicyLossValues.from_per_token(inputs, per_token, clipped=inputs.entropies < 1e-3)


def symmetric(inputs: LossInputs, scale: float = 1.0) -> Tensor:
    """scale * x * (e^x - 1), an estimate of KL(policy || reference) + KL(reference || policy)."""
    assert inputs.ref_logprobs is not None
    x = -inputs.log_ratio_to(inputs.ref_logprobs)
    return scale * x * x.expm1()


def with_solution(member: ScoredTrajectory, group: ScoredGroup, hint: str = "It was solved so:") -> Problem | None:
    """The problem with another member's response, which is correct."""
    solutions = [each for each in group.members if each.grade.correct and each is not member]
    if not solutions:
        return None
    problem = group.prompt.problem
    return replace(problem, question=f"{problem.question}\n{hint}\n{solutions[0].trajectory.text}")


def with_answer(member: ScoredTrajectory, group: ScoredGroup, hint: str = "The answer is") -> Problem:
    """The problem with its reference answer."""
    problem = group.prompt.problem
    return replace(problem, question=f"{problem.question}\n{hint} {problem.answer}.")


def toolless(group: ScoredGroup, min_calls: int = 1) -> bool:
    """Whether fewer than `min_calls` responses of a group call a tool."""
    return sum(bool(member.trajectory.tool_calls) for member in group.members) < min_calls


def some(group: ScoredGroup, count: int = 2) -> list[ScoredTrajectory]:
    """The longest response and random others."""
    longest = max(group.members, key=lambda member: len(member.trajectory))
    others = [member for member in group.members if member is not longest]
    return [*Random(group.id).sample(others, min(len(others), count - 1)), longest]


def results(member: ScoredTrajectory, weight: float = 0.05) -> Float32Array:
    """The observations of calls that succeeded."""
    weights_T = np.zeros(len(member.trajectory), np.float32)
    for call in member.trajectory.tool_calls:
        if call.outcome.ok:
            weights_T[call.start : call.stop] = weight
    return weights_T


def shouted(problem: Problem, ending: str = "!") -> str:
    """The question in ToRL's words, with a custom ending."""
    return (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it.\n"
        "User: Please integrate natural language reasoning with programs to solve the problem above, "
        f"and put your final answer within \\boxed{{}}.\n{problem.question}{ending}\nAssistant:\n"
    )


def multiples(count: int = 8) -> Iterator[Problem]:
    """Problems in the words of the demo's."""
    chance = Random(0)
    for number in range(count):
        a, b = chance.randint(100, 300), chance.randint(100, 300)
        question = f"Let x be the smallest common multiple of {a} and {b}. Find the sum of the digits of x."
        yield Problem(f"multiple-{number}", question, "0")
