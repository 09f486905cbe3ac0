"""The replay of agent programs' trajectories from their token ids, results and messages."""

from collections.abc import Sequence

from torl._core import Scanner
from torl.base.types import FinishReason, Markup, StopReason, ToolCall, Trajectory, Turn
from torl.components.formats import ChatFormat, require_chat_format
from torl.components.formats.chat.calls import ChatCall
from torl.components.formats.format import turn_stop_condition
from torl_lab.audit.replay import MismatchError, ReplayContext, is_complete
from torl_lab.audit.tokens import check_arrays, make_turn


def agent_mismatch(trajectory: Trajectory, context: ReplayContext) -> str | None:
    """Return the first contradiction between a trajectory and its token ids or the program's messages, or None.

    Limits and stop strings of single requests are not recorded, so the ends of turns are taken from the turns.
    """
    ids = trajectory.token_ids_T.tolist()
    try:
        if not trajectory.turns or not trajectory.prompt.token_ids:
            raise MismatchError("it has no turn or no prompt")
        position = 0
        for number, turn in enumerate(trajectory.turns):
            if number:
                position += _inserted(trajectory, trajectory.turns[number - 1], ids, turn.start, context)
            if turn.start != position:
                raise MismatchError(f"turn {number} starts at token {turn.start}, expected {position}")
            _check_turn(turn, number, ids, context, prompt=trajectory.prompt.token_ids)
            position = turn.stop
        if position != len(ids):
            raise MismatchError("there are tokens after the last turn")
        check_arrays(trajectory, trajectory.turns)
    except MismatchError as mismatch:
        return str(mismatch)
    truncated = trajectory.turns[-1].stop_reason is StopReason.LENGTH
    if trajectory.finish_reason is not (FinishReason.LENGTH if truncated else FinishReason.STOP):
        return f"the finish reason is {trajectory.finish_reason.value}, but the last turn ended otherwise"
    if trajectory.text != context.vocabulary.decode(ids):
        return "the text does not match the token ids"
    if trajectory.format != context.format.name:
        return f"the format is {trajectory.format!r}, expected {context.format.name!r}"
    return None


def _check_turn(turn: Turn, number: int, ids: list[int], context: ReplayContext, prompt: Sequence[int]) -> None:
    """Check the end, the text and the blocks of a turn."""
    token_ids, form = ids[turn.start : turn.stop], context.format
    if not token_ids or not context.stop_token_ids.isdisjoint(token_ids[:-1]):
        raise MismatchError(f"turn {number} continues after an end token")
    before = context.vocabulary.decode_bytes([*prompt, *ids[: turn.start]])
    end = turn_stop_condition(form, context.rollout.stop, calls_left=True)
    scan = Scanner(context.vocabulary, end, not before or before.endswith(b"\n")).feed(token_ids)
    if scan.consumed != len(token_ids):
        raise MismatchError(f"turn {number} continues after its end")
    replayed = make_turn(context.vocabulary, ids, turn.start, scan, turn.stop_reason)
    if (turn.text, turn.blocks) != (replayed.text, replayed.blocks):
        raise MismatchError(f"the text or the blocks of turn {number} do not match its tokens")
    stopped = token_ids[-1] in context.stop_token_ids
    if turn.stop_reason is StopReason.LENGTH and (stopped or scan.overshoot is not None):
        raise MismatchError(f"turn {number} was not truncated")
    if turn.stop_reason is StopReason.CALL and not (
        token_ids[-1] in context.end_token_ids and form.parse_calls(replayed)
    ):
        raise MismatchError(f"turn {number} requests no call")


def _inserted(trajectory: Trajectory, turn: Turn, ids: list[int], stop: int, context: ReplayContext) -> int:
    """Check the tokens between a turn and the next one, which starts at `stop`, and return their number."""
    form = require_chat_format(context.format)
    calls, messages = trajectory.calls_in(turn), trajectory.user_messages_after(turn)
    if not calls and not messages:
        raise MismatchError(f"there is no result and no message between the turn that ends at {turn.stop} and the next")
    spans = {(call.start, call.stop) for call in calls}
    spans |= {(each.start, each.stop) for each in trajectory.user_messages if each.start == turn.stop}
    if spans != {(turn.stop, stop)}:
        raise MismatchError(f"the text inserted at {turn.stop} has the wrong position")
    if not all(is_complete(call.outcome) for call in calls):
        return stop - turn.stop  # the record truncates a result
    parts = form.continuation(_answered(form, turn, calls), [call.outcome.text for call in calls], messages)
    ended = ids[turn.stop - 1] in context.end_token_ids
    expected, text = context.encoder.encode_observation(parts if ended else [Markup(form.message_end), *parts])
    observations = {call.observation for call in calls}
    observations |= {each.observation for each in trajectory.user_messages if each.start == turn.stop}
    if ids[turn.stop : stop] != expected or observations != {text}:
        raise MismatchError(f"the text inserted at {turn.stop} does not match the program's messages")
    return len(expected)


def _answered(form: ChatFormat, turn: Turn, calls: Sequence[ToolCall]) -> list[ChatCall]:
    """Return the calls in a turn's text that belong to the recorded calls, in the turn's order."""
    written, found = iter(form.calls(turn)), []
    for call in calls:
        match = next((each for each in written if each.request == call.request), None)
        if match is None:
            raise MismatchError(f"the turn that ends at {turn.stop} does not contain a call that has a result")
        found.append(match)
    return found
