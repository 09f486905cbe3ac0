"""The calls of a turn: what was asked for, what ran, and what the model was shown of it."""

from collections.abc import Sequence

from torl.apps.audit.outcomes import is_complete, python_mismatch
from torl.apps.audit.rules import MismatchError, ReplayContext
from torl.formats.base import limit_calls
from torl.rollout.observation import observation_text
from torl.types import ToolCall, ToolRequest, Turn, UserMessage


def check_observation(
    calls: Sequence[ToolCall],
    said: Sequence[UserMessage],
    number: int,
    turn: Turn,
    overshoot: bytes,
    rules: ReplayContext,
) -> list[int] | None:
    """The tokens of the observation that answers a turn; None where the record cuts what was markup.

    Args:
        calls: of the turn.
        said: by the environment, behind their results.
        number: of the first of them in the response.
        turn: that asked.
        overshoot: what its last token holds beyond its end.
        rules: of the run.

    Raises:
        MismatchError: something is off in the calls.
    """
    asked = limit_calls(rules.format.parse_calls(turn), rules.rollout.max_tool_calls - number) if calls else []
    if len(asked) != len(calls):
        raise MismatchError(f"turn asks for {len(asked)} calls, and {len(calls)} were answered, from call {number} on")
    for index, (call, expected) in enumerate(zip(calls, asked, strict=True), number):
        request = expected if isinstance(expected, ToolRequest) else None
        if request != call.request:
            raise MismatchError(f"call {index} ran other code than was written")
        if request is None and call.outcome != expected:
            raise MismatchError(f"call {index} asked for nothing, and has an outcome")
    observations = {call.observation for call in calls} | {message.observation for message in said}
    if len(observations) != 1:
        raise MismatchError(f"the calls from call {number} on have several observations")
    outcomes = [call.outcome for call in calls]
    messages = [message.text for message in said]
    answer = observation_text(rules.format, rules.encoder, turn, outcomes, overshoot, messages)
    if not all(is_complete(call.outcome) for call in calls):
        return rules.encoder.encode(calls[0].observation) if isinstance(answer, str) else None
    token_ids, observation = rules.encoder.encode_observation(answer)
    if observations != {observation}:
        raise MismatchError(f"the observation of call {number} is not what its code gave")
    for index, call in enumerate(calls, number):
        is_python = call.request is not None and call.request.tool in rules.python_tools
        if is_python and (problem := python_mismatch(call.outcome)):
            raise MismatchError(f"the outcome of call {index} contradicts itself: {problem}")
    return token_ids
