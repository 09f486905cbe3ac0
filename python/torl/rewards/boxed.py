r"""The outcome reward of the papers: what stands in the last \boxed{...}, compared with the reference."""

import asyncio
from typing import Any

from torl.component import RunContext
from torl.options import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.rewards.base import Reward
from torl.rewards.cluster_grader import ClusterGrader
from torl.rewards.grader import Grader
from torl.rewards.shaping import has_valid_format, malformed_turns, overlong_punishment, ran_failing_code
from torl.rewards.verdict import Verdict
from torl.text.answer_tags import AnswerFormat
from torl.text.answers import find_answer
from torl.types import Grade, Group, Trajectory

MIN_WORKERS = 2
"""So that one pair that takes its whole time does not hold up all others."""


class BoxedOptions(Section):
    """Options of the reward "boxed"."""

    correct: float = 1.0
    """Reward of a correct final answer."""
    wrong: float = -1.0
    """Reward of a wrong or missing final answer."""
    require_format: AnswerFormat | None = None
    """Reward a correct answer only in a response that ended by itself or at a stop string, in the format that ORZ or
    ZeroTIR ask for ("orz": a box in <answer>; "zerotir": besides, each tag once, and </think>); off when unset."""
    failed_code: float = 0.0
    """Added if the trajectory ran code and some of it failed (ToRL tried -0.5)."""
    malformed_turn: float = 0.0
    """Paid to each turn that asks for a call that cannot be made, and to a first turn that asks for none (GTPO:
    -0.1)."""
    call_bonus: NonNegativeFloat = 0.0
    """Added to the reward of an answer that is not right for each turn that calls a tool, as verl's recipe of ReTool
    does (0.1), so that calls are tried where nothing succeeds yet."""
    max_bonus_calls: NonNegativeInt = 4
    """How many of them count."""
    overlong_buffer: NonNegativeInt = 0
    """Tokens before `rollout.max_response_tokens` in which a punishment of length grows from 0 (DAPO); 0 for none."""
    overlong_penalty: NonNegativeFloat = 1.0
    """That punishment at the limit."""
    grader_timeout_seconds: PositiveFloat = 2.0
    """Time the grader may spend on one pair of answers."""
    grader_workers: PositiveInt | None = None
    """Grader processes; one for every eight cores when unset, and at least 2."""

    def check_within(self, config: Any) -> None:
        """Every response would be punished for its length if the buffer were as long as a response may be."""
        limit = config.rollout.max_response_tokens
        if self.overlong_buffer >= limit:
            raise ValueError(f"overlong_buffer must be below rollout.max_response_tokens ({limit})")


class BoxedReward(Reward):
    r"""Pays for the last complete \boxed{...} of what was sampled, plus what its options add.

    Parts of a grade: "answer"; "failed_code", "wrong_calls" and "length" where the options give them a weight.
    """

    def __init__(self, options: BoxedOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or BoxedOptions()
        self.grader: Grader | ClusterGrader = Grader(
            self.options.grader_workers or MIN_WORKERS, self.options.grader_timeout_seconds
        )

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by itself; all of them at once.

        Raises:
            RewardError: the graders are broken.
        """
        limit = group.max_response_tokens
        return list(await asyncio.gather(*(self._grade(each, limit) for each in group.trajectories)))

    async def start(self, context: RunContext) -> None:
        """Start the grader's processes; on a cluster, divide them among the nodes."""
        cluster = context.cluster
        if cluster.is_remote:
            workers = -(-(self.options.grader_workers or MIN_WORKERS) // cluster.nodes)
            self.grader = ClusterGrader(workers, self.options.grader_timeout_seconds)
        if isinstance(self.grader, ClusterGrader):
            await self.grader.start(cluster)
        else:
            await asyncio.to_thread(self.grader.start)

    async def close(self) -> None:
        """End them."""
        if isinstance(self.grader, ClusterGrader):
            await self.grader.close()
        else:
            await asyncio.to_thread(self.grader.close)

    async def _grade(self, trajectory: Trajectory, max_response_tokens: int) -> Grade:
        answer = find_answer(trajectory.answer_text)
        verdict = Verdict(correct=False)
        if answer is not None:
            verdict = await self.grader.grade_async(trajectory.prompt.problem.answer, answer.text)
        asked = self.options.require_format
        valid = asked is None or has_valid_format(trajectory, asked)
        parts = self._parts(trajectory, verdict.correct and valid, max_response_tokens)
        text = None if answer is None else answer.text
        turns = self._turn_rewards(trajectory)
        return Grade(sum(parts.values()), verdict.correct, text, verdict.failure, parts, turns, valid_format=valid)

    def _turn_rewards(self, trajectory: Trajectory) -> tuple[float, ...]:
        pay = self.options.malformed_turn
        return tuple(pay * malformed for malformed in malformed_turns(trajectory)) if pay else ()

    def _parts(self, trajectory: Trajectory, paid: bool, max_response_tokens: int) -> dict[str, float]:
        options = self.options
        parts = {"answer": options.correct if paid else options.wrong}
        if options.failed_code:
            parts["failed_code"] = options.failed_code if ran_failing_code(trajectory) else 0.0
        if options.call_bonus:
            calls = min(options.max_bonus_calls, sum(bool(trajectory.calls_in(turn)) for turn in trajectory.turns))
            parts["wrong_calls"] = 0.0 if paid else options.call_bonus * calls
        if options.overlong_buffer and options.overlong_penalty:
            (punishment,) = overlong_punishment([len(trajectory)], max_response_tokens, options.overlong_buffer)
            parts["length"] = options.overlong_penalty * float(punishment)
        return parts
