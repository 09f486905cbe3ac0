"""Trajectories as rows of plain JSON.

`decode_trajectory` inverts `encode_trajectory`, except that tool output is truncated; the observation contains the part
that the model saw. The fields of a row are in `torl.run.records.row_types`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, get_args, get_type_hints

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode

from torl.base.errors import RecordError
from torl.base.inputs import decode_utf8, parse_json
from torl.base.types import (
    Block,
    Float32Array,
    Grade,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
)
from torl.run.records.row_types import Row, read_row, write_row

Kind = TypeVar("Kind", bound=Struct)

_STEP_OF_PLACE: Final = re.compile(r"(?<=\.)\w+|(?<=\[)[^\]]+")


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
    return write_row(Row, record)


def decode_trajectory(row: Mapping[str, Any]) -> TrajectoryRecord:
    """Return the record of a row. The row lacks the problem's metadata.

    Raises:
        ValueError: The row is not a complete trajectory, or a value has another type.
    """
    return _read_record(check_row(row, Row))


def decode_line(line: bytes) -> TrajectoryRecord:
    """Return the record of a line of a trajectory file, several times as fast as by way of its row.

    Raises:
        ValueError: The line is not JSON, or its row is invalid.
    """
    return _read_record(parse_row(line, Row))


def parse_row(line: bytes | str, kind: type[Kind]) -> Kind:
    """Return the fields of a line that a type of rows has. The others are skipped.

    Raises:
        ValueError: The line is not JSON, a field is missing, or a value has another type.
    """
    text = decode_utf8(line) if isinstance(line, bytes) else line
    try:
        return decode(text, type=kind)
    except (ValueError, RecursionError):
        # Python's parser also takes what others may write: numbers that are not finite, and lone surrogates.
        return check_row(parse_json(text), kind)


def check_row(row: object, kind: type[Kind]) -> Kind:
    """Return the fields of a row of plain JSON, whose types are checked and not converted.

    Raises:
        ValueError: A field is missing, or a value has another type. The message names its place and quotes it.
    """
    try:
        return convert(row, kind)
    except ValidationError as error:
        raise ValueError(_description(str(error), row)) from error


def _description(message: str, row: Any) -> str:
    """Return the message of an error with the place and the value that it is about."""
    problem, _, found = message.partition(" - at ")
    names: list[str] = []
    value = row
    for name in _STEP_OF_PLACE.findall(found):
        if name == "...":  # msgspec does not tell which member of a dictionary
            members, *_ = get_args(get_type_hints(Row, include_extras=True)[names[-1]])
            name = next(each for each in value if not _has_type(value[each], get_args(members)[1]))
        value = value[name if isinstance(value, Mapping) else int(name)]
        names.append(name)
    if problem.startswith("Object missing required field"):
        return f"{'.'.join([*names, problem.split('`')[1]])} is missing"
    expected = "expected a finite number" if "e+308" in problem else problem.lower().partition(", got")[0]
    return f"{'.'.join(names) or 'the row'}: {expected.replace('`', '')}, got {value!r:.60}"


def _has_type(value: object, kind: Any) -> bool:
    try:
        convert(value, kind)
    except ValidationError:
        return False
    return True


def _read_record(row: Row) -> TrajectoryRecord:
    values = read_row(row)
    trajectory, grade = values.pop("trajectory"), Grade(**values.pop("grade"))
    prompt = trajectory.pop("prompt")
    branches = tuple(map(_read_record, row.branches))
    record = TrajectoryRecord(
        trajectory=Trajectory(
            prompt=Prompt(Problem(**prompt.pop("problem")), **prompt),
            turns=tuple(map(_read_turn, row.turns)),
            tool_calls=tuple(map(_read_call, row.tool_calls)),
            branches=tuple(branch.trajectory for branch in branches),
            **trajectory,
        ),
        grade=grade,
        branches=branches,
        **values,
    )
    _check_lengths(record)
    return record


def _read_turn(row: Any) -> Turn:
    blocks = tuple(Block(row.text[start:stop], start, stop, token) for start, stop, token in row.blocks)
    return Turn(**read_row(row), blocks=blocks)


def _read_call(row: Any) -> ToolCall:
    values = read_row(row)
    request, outcome = values.pop("request"), Outcome(**values.pop("outcome"))
    return ToolCall(ToolRequest(**request) if row.tool is not None else None, outcome, **values)


def _check_lengths(record: TrajectoryRecord) -> None:
    trajectory = record.trajectory
    arrays = (trajectory.loss_mask_T, trajectory.rollout_logprobs_T, trajectory.policy_versions_T)
    if any(len(array) != len(trajectory) for array in (*arrays, *record.token_arrays.values())):
        raise ValueError("the arrays differ in length")
    if len(record.grade.turn_rewards) not in (0, len(trajectory.turns)):
        raise ValueError("the number of turn rewards is not the number of turns")
