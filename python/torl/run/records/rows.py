"""Trajectories as rows of plain JSON.

`decode_trajectory` inverts `encode_trajectory`, except that tool output is truncated after `MAX_OUTPUT_CHARACTERS`
characters; the observation contains the part that the model saw.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from torl.base.errors import RecordError
from torl.base.types import (
    Block,
    FinishReason,
    Float32Array,
    Grade,
    Outcome,
    OutcomeStatus,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
    UserMessage,
)
from torl.run.records.row_types import check_types

MAX_OUTPUT_CHARACTERS = 16384


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """One row of a trajectory file.

    Attributes:
        step: Training step; of an evaluation, the number of steps before it.
        trajectory: Trajectory.
        grade: Its grade.
        advantage: The mean over the sampled tokens. None in evaluations, and for a trajectory outside the batch.
        token_arrays: Token-wise advantages and the arrays that they were computed from, over the response. Usually
            empty.
        branches: The records of the trajectory's branches.
    """

    step: int
    trajectory: Trajectory
    grade: Grade
    advantage: float | None = None
    token_arrays: Mapping[str, Float32Array] = field(default_factory=dict)
    branches: tuple["TrajectoryRecord", ...] = ()

    def __repr__(self) -> str:
        return f"<TrajectoryRecord of step {self.step}: {self.trajectory}, reward {self.grade.reward:g}>"

    @property
    def episode_trajectories(self) -> tuple["TrajectoryRecord", ...]:
        """The records of all trajectories of the episode; this one is the last."""
        return (*self.branches, self)


def group_records(step: int, groups: Iterable[ScoredGroup]) -> list[TrajectoryRecord]:
    """Return the records of groups outside training, after `step` updates."""
    return [_record(step, member) for group in groups for member in group.members]


def _record(step: int, member: ScoredTrajectory) -> TrajectoryRecord:
    *branches, main = (TrajectoryRecord(step, each.trajectory, each.grade) for each in member.episode_trajectories)
    return replace(main, branches=tuple(branches))


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Return one line of JSON. Numbers that are not finite become null.

    Raises:
        RecordError: A value cannot be expressed in JSON.
    """
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    try:
        text = json.dumps(finite, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"a record cannot be written as JSON: {error} (details of a tool and parts of a reward must be plain)"
        ) from error
    return text.encode("utf-8", errors="backslashreplace") + b"\n"


def encode_trajectory(record: TrajectoryRecord) -> dict[str, Any]:
    """Return a trajectory as plain JSON, readable without torl."""
    trajectory, grade = record.trajectory, record.grade
    problem = trajectory.prompt.problem
    row = {
        "step": record.step,
        "group": trajectory.group_id,
        "sample": trajectory.sample_index,
        "problem": problem.id,
        "question": problem.question,
        "reference_answer": problem.answer,
        "answer": grade.answer,
        "correct": bool(grade.correct),
        "grader_failure": grade.failure,
        "valid_format": bool(grade.valid_format),
        "reward": float(grade.reward),
        "advantage": record.advantage,
        "text": trajectory.text,
        "sampled_text": trajectory.sampled_text,
        "finish_reason": trajectory.finish_reason.value,
        "format": trajectory.format,
        "tool_calls": [_encode_call(call) for call in trajectory.tool_calls],
        "turns": [_encode_turn(turn) for turn in trajectory.turns],
        "seconds": trajectory.seconds,
        "prompt_token_ids": list(trajectory.prompt.token_ids),
        "token_ids": trajectory.token_ids_T.tolist(),
        # Lengths of runs of equal values, and the value of each run: true on sampled tokens.
        "loss_mask": [[bool(value), length] for value, length in _runs(trajectory.loss_mask_T)],
        "policy_versions": [[int(value), length] for value, length in _runs(trajectory.policy_versions_T)],
        "rollout_logprobs": _decimals(trajectory.rollout_logprobs_T),
        "token_numbers": {name: _decimals(array) for name, array in record.token_arrays.items()},
    }
    if trajectory.user_messages:
        row["user_messages"] = [asdict(message) for message in trajectory.user_messages]
    if trajectory.environment_rewards:
        row["environment_rewards"] = _floats(trajectory.environment_rewards)
    if grade.parts:
        row["reward_parts"] = _floats(grade.parts)
    if grade.turn_rewards:
        row["turn_rewards"] = list(map(float, grade.turn_rewards))
    if trajectory.answer is not None:
        row["program_answer"] = trajectory.answer
    if record.branches:
        row["branches"] = [encode_trajectory(branch) for branch in record.branches]
    return row


def decode_trajectory(row: Mapping[str, Any]) -> TrajectoryRecord:
    """Return the record of a row. The row lacks the problem's metadata.

    Raises:
        KeyError, TypeError, ValueError: The row is not a complete trajectory, or a value has another type.
    """
    check_types(row)
    return _decode(row)


def _decode(row: Mapping[str, Any]) -> TrajectoryRecord:
    branches = tuple(_decode(branch) for branch in row.get("branches", ()))
    trajectory = Trajectory(
        prompt=Prompt(
            Problem(row["problem"], row["question"], row["reference_answer"]), tuple(row["prompt_token_ids"])
        ),
        group_id=row["group"],
        sample_index=row["sample"],
        token_ids_T=np.array(row["token_ids"], np.int32),
        loss_mask_T=_unroll(row["loss_mask"], np.bool_),
        rollout_logprobs_T=np.array(row["rollout_logprobs"], np.float32),
        policy_versions_T=_unroll(row["policy_versions"], np.int32),
        turns=tuple(_decode_turn(turn) for turn in row["turns"]),
        tool_calls=tuple(_decode_call(call) for call in row["tool_calls"]),
        finish_reason=FinishReason(row["finish_reason"]),
        text=row["text"],
        seconds=row["seconds"],
        format=row["format"],
        branches=tuple(branch.trajectory for branch in branches),
        answer=row.get("program_answer"),
        user_messages=tuple(UserMessage(**message) for message in row.get("user_messages", ())),
        environment_rewards=row.get("environment_rewards", {}),
    )
    numbers = {name: np.array(values, np.float32) for name, values in row["token_numbers"].items()}
    grade = Grade(
        row["reward"],
        row["correct"],
        row["answer"],
        row["grader_failure"],
        parts=row.get("reward_parts", {}),
        turn_rewards=tuple(row.get("turn_rewards", ())),
        valid_format=row["valid_format"],
    )
    record = TrajectoryRecord(row["step"], trajectory, grade, row["advantage"], numbers, branches)
    _check_lengths(record)
    return record


def _check_lengths(record: TrajectoryRecord) -> None:
    trajectory = record.trajectory
    arrays = (trajectory.loss_mask_T, trajectory.rollout_logprobs_T, trajectory.policy_versions_T)
    if any(len(array) != len(trajectory) for array in (*arrays, *record.token_arrays.values())):
        raise ValueError("the arrays differ in length")
    if len(record.grade.turn_rewards) not in (0, len(trajectory.turns)):
        raise ValueError("the number of turn rewards is not the number of turns")


def _encode_turn(turn: Turn) -> dict[str, Any]:
    return {
        "start": turn.start,
        "stop": turn.stop,
        "text": turn.text,
        "stop_reason": turn.stop_reason.value,
        "blocks": [[block.start, block.stop, block.token] for block in turn.blocks],  # characters of the text
        "cached_tokens": turn.cached_tokens,
        **({"replica": turn.replica} if turn.replica else {}),
    }


def _decode_turn(row: Mapping[str, Any]) -> Turn:
    text = row["text"]
    blocks = tuple(Block(text[start:stop], start, stop, token) for start, stop, token in row["blocks"])
    stop_reason, replica = StopReason(row["stop_reason"]), row.get("replica", 0)
    return Turn(row["start"], row["stop"], text, stop_reason, blocks, row["cached_tokens"], replica)


def _encode_call(call: ToolCall) -> dict[str, Any]:
    request, outcome = call.request, shorten_outcome(call.outcome)
    return {
        "tool": None if request is None else request.tool,
        "arguments": None if request is None else dict(request.arguments),
        "status": outcome.status.value,
        "text": outcome.text,
        "error": outcome.error,
        "details": outcome.details,
        "observation": call.observation,
        "start": call.start,
        "stop": call.stop,
        "wait_seconds": call.wait_seconds,
    }


def _decode_call(row: Mapping[str, Any]) -> ToolCall:
    request = None if row["tool"] is None else ToolRequest(row["tool"], row["arguments"])
    outcome = Outcome(OutcomeStatus(row["status"]), row["text"], row["error"], row["details"])
    return ToolCall(request, outcome, row["observation"], row["start"], row["stop"], row["wait_seconds"])


def shorten_outcome(outcome: Outcome) -> Outcome:
    """Return an outcome as records keep it, with truncated texts. A detail that equals its text is the same object."""
    text = _shortened(outcome.text)
    details = {
        name: text if isinstance(value, str) and value == outcome.text else _shortened(value)
        for name, value in outcome.details.items()
    }
    return Outcome(outcome.status, text, _shortened(outcome.error), details)


def _shortened(value: Any) -> Any:
    """Return plain JSON with truncated texts, and null for numbers that are not finite."""
    if isinstance(value, str):
        return value[:MAX_OUTPUT_CHARACTERS]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _shortened(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(member) for member in value]
    return value


def _floats(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _decimals(values: Float32Array) -> list[float]:
    """Return the shortest decimals that parse to the same float32."""
    return [float(text) for text in values.astype(np.float32).astype(str)]


def _runs(values: npt.NDArray[Any]) -> Iterator[tuple[Any, int]]:
    for value, run in groupby(values.tolist()):
        yield value, sum(1 for _ in run)


def _unroll(runs: list[list[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    values, lengths = [value for value, _ in runs], [length for _, length in runs]
    return np.repeat(np.array(values, dtype), lengths)
