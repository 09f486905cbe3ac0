"""The row of a trajectory, declared once: the name, the type and the place in the record of each field.

Writing, reading and checking rows follow from `Row`. Turns and calls have the fields of their classes in
`torl.base.types`, so that a field that is added there is recorded, too.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from enum import Enum
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from msgspec import NODEFAULT, Meta, Struct, defstruct, structs

from torl.base.types import FinishReason, Float32Array, Outcome, ToolCall, ToolRequest, Turn, UserMessage

Number: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


def as_is(value: Any) -> Any:
    """Return a value that a row has as the record has it."""
    return value


class At(NamedTuple):
    """The place of a field in the object that a row is of.

    Attributes:
        path: Attributes that lead to the value, such as "trajectory.group_id".
        write: Function of the value to plain JSON.
        read: Its inverse. None for a value that follows from others, or is read together with others.
    """

    path: str
    write: Callable[[Any], Any] = as_is
    read: Callable[[Any], Any] | None = as_is


def write_row(kind: type[Struct], source: object) -> dict[str, Any]:
    """Return the row of an object, without the fields that have their defaults."""
    row = {}
    for name, at, get, _, default in _fields(kind):
        value = get(source)
        if at.write is not as_is:
            value = at.write(value)
        if default is NODEFAULT or value != default:
            row[name] = value
    return row


def read_row(row: Struct) -> dict[str, Any]:
    """Return the values of a row by their places: those of "trajectory.group_id" are in a dictionary "trajectory"."""
    values: dict[str, Any] = {}
    for name, at, _, (*parents, last), _ in _fields(type(row)):
        if at.read is not None:
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})
            value = getattr(row, name)
            place[last] = value if at.read is as_is else at.read(value)
    return values


@cache
def _fields(kind: type[Struct]) -> list[tuple[str, At, Callable[[object], Any], list[str], Any]]:
    """Return the name, the place, its getter, its attributes and the default of each field."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[Any] = []
    for each in structs.fields(kind):
        [at] = (extra for extra in get_args(hints[each.name]) if isinstance(extra, At))
        default = each.default if each.default_factory is NODEFAULT else each.default_factory()
        found.append((each.name, at, attrgetter(at.path), at.path.split("."), default))
    return found


# --- turns and calls --------------------------------------------------------------------------------------------------


def _fields_of(kind: type, path: str = "", *, is_optional: bool = False) -> dict[str, Any]:
    """Return the types in a row of the fields of a dataclass, by name."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        at = At(f"{path}{name}")
        if isinstance(hint, type) and issubclass(hint, Enum):
            hint, at = str, at._replace(write=str, read=hint)
        elif get_origin(hint) is Mapping:
            hint, at = dict[str, Any], at._replace(write=lambda value: value if value is None else dict(value))
        found[name] = Annotated[hint | None if is_optional else Number if hint is float else hint, at]
    return found


def _row_type(kind: type, row_fields: Mapping[str, Any]) -> type[Struct]:
    """Return the type of the row of a dataclass, with its defaults."""
    defaults = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    made = [(name, hint, defaults.get(name, NODEFAULT)) for name, hint in row_fields.items()]
    return defstruct(f"{kind.__name__}Row", made)


_BLOCKS = At("blocks", lambda blocks: [[block.start, block.stop, block.token] for block in blocks], None)
TurnRow = _row_type(Turn, _fields_of(Turn) | {"blocks": Annotated[list[tuple[int, int, int]], _BLOCKS]})
"""A turn. A block is its characters [start, stop) in the text, and the token of the first."""
CallRow = _row_type(
    ToolCall,
    _fields_of(ToolRequest, "request.", is_optional=True)
    | _fields_of(Outcome, "outcome.")
    | {name: hint for name, hint in _fields_of(ToolCall).items() if name not in ("request", "outcome")},
)
"""A call: its request, if there is one, its outcome, and what the response has of it."""
_NO_REQUEST: Final = SimpleNamespace(tool=None, arguments=None)


# --- trajectories -----------------------------------------------------------------------------------------------------


def _each(function: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    return lambda values: [function(value) for value in values]


def _by_name(function: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda values: {name: function(value) for name, value in values.items()}


def _call(call: ToolCall) -> dict[str, Any]:
    request: Any = call.request or _NO_REQUEST
    return write_row(CallRow, replace(call, request=request, outcome=shorten_outcome(call.outcome)))


def _runs(values: npt.NDArray[Any]) -> list[list[Any]]:
    """Return the value and the length of each run of equal values."""
    return [[value, sum(1 for _ in run)] for value, run in groupby(values.tolist())]


def _unroll(runs: list[tuple[Any, int]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    values, lengths = [value for value, _ in runs], [length for _, length in runs]
    return np.repeat(np.array(values, dtype), lengths)


def _decimals(values: Float32Array) -> list[float]:
    """Return the shortest decimals that parse to the same float32."""
    return [float(text) for text in values.astype(np.float32).astype(str)]


_turn: Final = partial(write_row, TurnRow)
_mask: Final = partial(_unroll, dtype=np.bool_)
_versions: Final = partial(_unroll, dtype=np.int32)
_ids: Final = partial(np.array, dtype=np.int32)
_floats: Final = partial(np.array, dtype=np.float32)


class Row(Struct, kw_only=True):
    """A line of a trajectory file. A field with a default is left out of the line that has it."""

    step: Annotated[int, At("step")]
    group: Annotated[str, At("trajectory.group_id")]
    sample: Annotated[int, At("trajectory.sample_index")]
    problem: Annotated[str, At("trajectory.prompt.problem.id")]
    question: Annotated[str, At("trajectory.prompt.problem.question")]
    reference_answer: Annotated[str, At("trajectory.prompt.problem.answer")]
    answer: Annotated[Any, At("grade.answer")]  # a text, but a reward of another package may give anything
    correct: Annotated[bool, At("grade.correct", bool)]
    grader_failure: Annotated[str | None, At("grade.failure")]
    valid_format: Annotated[bool, At("grade.valid_format", bool)]
    reward: Annotated[Number, At("grade.reward", float)]
    advantage: Annotated[Number | None, At("advantage")]
    text: Annotated[str, At("trajectory.text")]
    sampled_text: Annotated[str, At("trajectory.sampled_text", read=None)]
    finish_reason: Annotated[str, At("trajectory.finish_reason", str, FinishReason)]
    format: Annotated[str, At("trajectory.format")]
    tool_calls: Annotated[list[CallRow], At("trajectory.tool_calls", _each(_call), None)]  # type: ignore[valid-type]
    turns: Annotated[list[TurnRow], At("trajectory.turns", _each(_turn), None)]  # type: ignore[valid-type]
    seconds: Annotated[Number, At("trajectory.seconds")]
    prompt_token_ids: Annotated[list[int], At("trajectory.prompt.token_ids", list, tuple)]
    token_ids: Annotated[list[Int32], At("trajectory.token_ids_T", np.ndarray.tolist, _ids)]
    # Runs of equal values: the value, true on sampled tokens, and the number of tokens.
    loss_mask: Annotated[list[tuple[bool, int]], At("trajectory.loss_mask_T", _runs, _mask)]
    policy_versions: Annotated[list[tuple[Int32, int]], At("trajectory.policy_versions_T", _runs, _versions)]
    rollout_logprobs: Annotated[list[Number], At("trajectory.rollout_logprobs_T", _decimals, _floats)]
    token_numbers: Annotated[dict[str, list[Number]], At("token_arrays", _by_name(_decimals), _by_name(_floats))]
    user_messages: Annotated[list[UserMessage], At("trajectory.user_messages", _each(asdict), tuple)] = []
    environment_rewards: Annotated[dict[str, Number], At("trajectory.environment_rewards", _by_name(float))] = {}
    grade_detail: Annotated[str, At("grade.detail")] = ""
    reward_parts: Annotated[dict[str, Number], At("grade.parts", _by_name(float))] = {}
    turn_rewards: Annotated[list[Number], At("grade.turn_rewards", _each(float), tuple)] = []
    program_answer: Annotated[str | None, At("trajectory.answer")] = None
    branches: Annotated[list["Row"], At("branches", _each(lambda record: write_row(Row, record)), None)] = []


MAX_OUTPUT_CHARACTERS: Final = 16384


def shorten_outcome(outcome: Outcome) -> Outcome:
    """Return an outcome as records keep it, with truncated texts. A detail that equals its text is the same object."""
    text = _shortened(outcome.text)
    details = {
        name: text if isinstance(value, str) and value == outcome.text else _shortened(value)
        for name, value in outcome.details.items()
    }
    return Outcome(outcome.status, text, _shortened(outcome.error), details)


def has_recovery(succeeded: Sequence[bool]) -> bool:
    """Whether a failed run is followed by a successful one."""
    return False in succeeded and True in succeeded[succeeded.index(False) :]


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
