"""The facts of episodes that diseases are diagnosed from, much smaller than their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from torl._core import repetition
from torl.records.behaviors import invents_results
from torl.records.files import trajectory_file
from torl.records.rows import TrajectoryRecord
from torl.text.answers import find_answer
from torl.types import FinishReason, OutcomeStatus, Trajectory

SURE: Final = 0.99
"""Probability of a token in a run of sure tokens (MiniMax-M1, arXiv 2506.13585)."""
RARE_ID: Final = 100_000
"""Smallest id of a token that a byte-pair tokenizer merged late (arXiv 2510.02387)."""


@dataclass(frozen=True, slots=True)
class Member:
    """The facts of an episode.

    Attributes:
        address: File and line of its record, relative to the run directory.
        group: Id of its group.
        sample: Index in the group.
        question: Text of the problem.
        reward: Total reward.
        parts: Parts of the reward.
        correct: Whether the answer is correct.
        valid_format: Whether the response has the required format.
        answered: Whether an answer was found.
        exact: Whether the answer is the reference answer, character for character.
        failure: Failure of the grader, if any.
        advantage: Mean advantage. None outside the batch.
        tokens: Number of sampled tokens.
        finish: Reason why the episode ended.
        calls: Number of tool calls.
        crashed: Number of calls whose process died.
        void: Whether a turn has neither code, nor a call, nor an answer.
        invented: Whether the model wrote a tool result itself. None if the format does not mark results.
        repeated: Fraction of the text's substrings that occur earlier in it.
        sure_run: Largest number of consecutive tokens with a probability above `SURE`.
        improbable: Number of rare tokens with a log-probability below -log(vocabulary) - 2.
        branches: Number of further token sequences of the episode.
    """

    address: str
    group: str
    sample: int
    question: str
    reward: float
    parts: Mapping[str, float]
    correct: bool
    valid_format: bool
    answered: bool
    exact: bool
    failure: str | None
    advantage: float | None
    tokens: int
    finish: FinishReason
    calls: int
    crashed: int
    void: bool
    invented: bool | None
    repeated: float
    sure_run: int
    improbable: int
    branches: int


def address_of(step: int, line: int) -> str:
    """Return the file and the line of a trajectory of a step, relative to the run directory."""
    return f"{trajectory_file(Path(), step)}:{line}"


def members_of(step: int, records: Sequence[TrajectoryRecord]) -> tuple[Member, ...]:
    """Return the facts of the episodes of a step, in the order of its file."""
    largest = max((int(each.token_ids_T.max(initial=0)) for record in records for each in _played(record)), default=0)
    return tuple(_member(address_of(step, line), record, largest + 1) for line, record in enumerate(records, start=1))


def _played(record: TrajectoryRecord) -> tuple[Trajectory, ...]:
    return tuple(each.trajectory for each in record.episode_trajectories)


def _member(address: str, record: TrajectoryRecord, vocabulary: int) -> Member:
    trajectory, grade, played = record.trajectory, record.grade, _played(record)
    problem = trajectory.prompt.problem
    invented = [found for each in played if (found := invents_results(each)) is not None]
    logprobs = [each.rollout_logprobs_T[each.loss_mask_T] for each in played]
    rare = [each.token_ids_T[each.loss_mask_T] >= RARE_ID for each in played]
    return Member(
        address=address,
        group=trajectory.group_id,
        sample=trajectory.sample_index,
        question=problem.question,
        reward=float(grade.total),
        parts=grade.parts,
        correct=bool(grade.correct),
        valid_format=bool(grade.valid_format),
        answered=grade.answer is not None,
        exact=grade.answer is not None and grade.answer.strip() == problem.answer.strip() != "",
        failure=grade.failure,
        advantage=record.advantage,
        tokens=sum(map(len, logprobs)),
        finish=trajectory.finish_reason,
        calls=sum(len(each.tool_calls) for each in played),
        crashed=sum(call.outcome.status is OutcomeStatus.CRASH for each in played for call in each.tool_calls),
        void=any(map(_has_void_turn, played)),
        invented=any(invented) if invented else None,
        repeated=max(repetition(each.sampled_text) for each in played),
        sure_run=max(map(_longest_sure_run, logprobs)),
        improbable=sum(
            int((ids & (values < -np.log(vocabulary) - 2)).sum()) for ids, values in zip(rare, logprobs, strict=True)
        ),
        branches=len(record.branches),
    )


def _has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn has neither a complete block, nor a call, nor an answer (SimpleTIR, arXiv 2509.02479)."""
    called = {call.start for call in trajectory.tool_calls if call.ran}
    return any(
        not turn.blocks and turn.stop not in called and find_answer(turn.text) is None for turn in trajectory.turns
    )


def _longest_sure_run(logprobs: npt.NDArray[np.float32]) -> int:
    sure = np.concatenate([[False], logprobs > np.log(SURE), [False]])
    edges = np.flatnonzero(sure[1:] != sure[:-1])
    return int((edges[1::2] - edges[::2]).max(initial=0))
