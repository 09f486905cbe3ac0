"""The types of the values in a row of a trajectory file, checked before the row is decoded."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Pairs: TypeAlias = list[list[int]]


class _Turn(TypedDict, total=False):
    start: int
    stop: int
    text: str
    stop_reason: str
    blocks: Pairs
    cached_tokens: int
    replica: int


class _Call(TypedDict, total=False):
    tool: str | None
    arguments: dict[str, Any] | None
    status: str
    text: str
    error: str | None
    details: dict[str, Any]
    observation: str
    start: int
    stop: int
    wait_seconds: Number


class _UserMessage(TypedDict, total=False):
    text: str
    observation: str
    start: int
    stop: int


class _Row(TypedDict, total=False):
    step: int
    group: str
    sample: int
    problem: str
    question: str
    reference_answer: str
    correct: bool
    grader_failure: str | None
    valid_format: bool
    reward: Number
    reward_parts: dict[str, Number]
    turn_rewards: list[Number]
    advantage: Number | None
    text: str
    sampled_text: str
    finish_reason: str
    format: str
    tool_calls: list[_Call]
    turns: list[_Turn]
    user_messages: list[_UserMessage]
    environment_rewards: dict[str, Number]
    seconds: Number
    prompt_token_ids: list[int]
    token_ids: list[int]
    loss_mask: list[list[bool | int]]
    policy_versions: Pairs
    rollout_logprobs: list[Number]
    token_numbers: dict[str, list[Number]]
    branches: "list[_Row]"


@cache
def _adapter() -> TypeAdapter[_Row]:
    return TypeAdapter(_Row)


def check_types(row: Mapping[str, Any]) -> None:
    """Check the types of the values in a row, without conversion. Missing keys are not errors.

    Raises:
        ValueError: A value has another type. The message names its place and quotes it.
    """
    try:
        _adapter().validate_python(row, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg'].lower()}, got {first['input']!r:.60}") from error
