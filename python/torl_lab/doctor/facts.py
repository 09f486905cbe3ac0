"""The facts of episodes that checks measure, much smaller than their records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isclose
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from torl._core import repetition
from torl.base.types import FinishReason, OutcomeStatus, Trajectory
from torl.components.text.answers import find_answer
from torl.run.records.behaviors import invents_results
from torl.run.records.files import trajectory_file
from torl.run.records.rows import TrajectoryRecord

SURE: Final = 0.99
"""Probability of a token in a run of sure tokens (MiniMax-M1, arXiv 2506.13585)."""
_DIFFERENT: Final = 0.01  # relative difference of numbers that no grader should take for equal
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
        contradicts: Whether answer and reference are numbers that differ by more than 1 %.
        failure: Failure of the grader, if any.
        advantage: Mean advantage. None outside the batch.
        tokens: Number of sampled tokens.
        length: Number of tokens of the response, observed ones included.
        finish: Reason why the episode ended.
        calls: Number of tool calls.
        crashed: Number of calls whose process died.
        failed: Number of calls that ran and did not succeed.
        void: Whether a turn has neither code, nor a call, nor an answer.
        invented: Whether the model wrote a tool result itself. None if the format does not mark results.
        repeated: Fraction of the text's substrings that occur earlier in it.
        sure_run: Largest number of consecutive tokens with a probability above `SURE`.
        improbable: Number of rare tokens with a log-probability below -log(vocabulary) - 2.
        branches: Number of further token sequences of the episode.
        boundaries: Number of places where observed tokens follow sampled ones.
        doubled: Number of these places with two end tokens.
        unseparated: Number of these places without an end token.
        replica: Number of the engine's replica that sampled the first turn.
        seconds: Duration of the episode.
        longest_wait: Seconds of its longest wait for a call.
        token_seconds: Time for each sampled token, without the time that the episode waited for tools.
        node_calls: Node, success and wait in seconds of each call whose node is known.
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
    contradicts: bool
    failure: str | None
    advantage: float | None
    tokens: int
    length: int
    finish: FinishReason
    calls: int
    crashed: int
    failed: int
    void: bool
    invented: bool | None
    repeated: float
    sure_run: int
    improbable: int
    branches: int
    boundaries: int
    doubled: int
    unseparated: int
    replica: int
    seconds: float
    longest_wait: float
    token_seconds: float
    node_calls: tuple[tuple[int, bool, float], ...]


def address_of(step: int, line: int) -> str:
    """Return the file and the line of a trajectory of a step, relative to the run directory."""
    return f"{_file_of(step)}:{line}"


@lru_cache(maxsize=64)
def _file_of(step: int) -> str:
    return str(trajectory_file(Path(), step))


def members_of(step: int, records: Sequence[TrajectoryRecord]) -> tuple[Member, ...]:
    """Return the facts of the episodes of a step, in the order of its file."""
    if not records:  # every episode failed
        return ()
    played = [tuple(each.trajectory for each in record.episode_trajectories) for record in records]
    counts = _token_counts([each for episode in played for each in episode])
    members, first = [], 0
    for line, (record, episode) in enumerate(zip(records, played, strict=True), start=1):
        own = {name: each[first : first + len(episode)] for name, each in counts.items()}
        totals = {name: int(each.max() if name == "sure_run" else each.sum()) for name, each in own.items()}
        members.append(_member(address_of(step, line), record, episode, totals))
        first += len(episode)
    return tuple(members)


def _token_counts(trajectories: Sequence[Trajectory]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the counts of tokens in each of at least one trajectory (N,), computed at once, as `Member` names them."""
    count, pad = len(trajectories), np.zeros(1, np.bool_)
    # An empty place after each trajectory separates it from the next one.
    ids = _joined([each.token_ids_T for each in trajectories], -1)
    logprobs = _joined([each.rollout_logprobs_T for each in trajectories], -np.inf)
    mask = _joined([each.loss_mask_T for each in trajectories], False)
    owner = np.repeat(np.arange(count), [len(each) + 1 for each in trajectories])
    is_last = np.append(owner[1:] != owner[:-1], True)
    kept = mask | is_last
    sure = np.concatenate([pad, (logprobs[kept] > np.log(SURE)) & mask[kept], pad])
    edges = np.flatnonzero(sure[1:] != sure[:-1])
    longest = np.zeros(count, np.int64)
    np.maximum.at(longest, owner[kept][edges[::2]], edges[1::2] - edges[::2])
    is_end = ids == _end_token(trajectories)
    follows = np.append(mask[:-1] & ~mask[1:] & ~is_last[1:], False)
    ends = is_end.astype(np.int8) + np.append(is_end[1:], False)
    lowest = -np.log(int(ids.max(initial=0)) + 1) - 2
    places = {
        "tokens": mask,
        "improbable": mask & (ids >= RARE_ID) & (logprobs < lowest),
        "boundaries": follows,
        "doubled": follows & (ends == 2),
        "unseparated": follows & (ends == 0),
    }
    return {"sure_run": longest} | {name: np.bincount(owner[each], minlength=count) for name, each in places.items()}


def _joined(arrays: Sequence[npt.NDArray[Any]], end: Any) -> npt.NDArray[Any]:
    return np.concatenate([part for array in arrays for part in (array, [end])])


def _end_token(trajectories: Sequence[Trajectory]) -> int:
    """Return the most frequent last token of the episodes that ended by themselves; -2 without any."""
    ended = (each for each in trajectories if each.finish_reason is FinishReason.STOP and len(each))
    found = Counter(int(each.token_ids_T[-1]) for each in ended)
    return found.most_common(1)[0][0] if found else -2


def _member(address: str, record: TrajectoryRecord, played: Sequence[Trajectory], counts: Mapping[str, int]) -> Member:
    trajectory, grade = record.trajectory, record.grade
    problem = trajectory.prompt.problem
    invented = [found for each in played if (found := invents_results(each)) is not None]
    calls = [call for each in played for call in each.tool_calls]
    waits = [call.wait_seconds for call in calls]
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
        contradicts=_contradicts(grade.answer, problem.answer),
        failure=grade.failure,
        advantage=record.advantage,
        length=len(trajectory),
        finish=trajectory.finish_reason,
        calls=len(calls),
        crashed=sum(call.outcome.status is OutcomeStatus.CRASH for call in calls),
        failed=sum(call.ran and not call.outcome.ok for call in calls),
        void=any(map(_has_void_turn, played)),
        invented=any(invented) if invented else None,
        repeated=max(repetition(each.sampled_text) for each in played),
        branches=len(record.branches),
        replica=trajectory.turns[0].replica if trajectory.turns else 0,
        seconds=trajectory.seconds,
        longest_wait=max(waits, default=0.0),
        token_seconds=max(0.0, trajectory.seconds - sum(waits)) / max(1, counts["tokens"]),
        node_calls=tuple(
            (call.outcome.details["worker_node"], call.outcome.ok, call.wait_seconds)
            for call in calls
            if "worker_node" in call.outcome.details
        ),
        **counts,
    )


def _contradicts(answer: str | None, reference: str) -> bool:
    if "_" in f"{answer}{reference}":  # the base of a numeral, such as 1061_9, which Python would read as a digit
        return False
    try:
        given, right = float(answer or ""), float(reference)
    except ValueError:
        return False
    return not isclose(given, right, rel_tol=_DIFFERENT, abs_tol=1e-6)


def _has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn has neither a complete block, nor a call, nor an answer (SimpleTIR, arXiv 2509.02479)."""
    called = {call.start for call in trajectory.tool_calls if call.ran}
    return any(
        not turn.blocks and turn.stop not in called and find_answer(turn.text) is None for turn in trajectory.turns
    )
