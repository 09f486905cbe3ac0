"""The replay of episodes, and of agent programs, from their token ids: turns, calls, observations and messages."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from torl._core import Scan, Scanner, Vocabulary
from torl.base.types import Block, FinishReason, Markup, StopReason, ToolCall, Trajectory, Turn, UserMessage
from torl.components.formats import ChatFormat, require_chat_format
from torl.components.formats.chat.calls import ChatCall
from torl.components.formats.format import is_void, turn_stop_condition
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.checks import MAX_LOGPROB
from torl_lab.audit.replay import (
    MismatchError,
    ReplayContext,
    check_arrays,
    check_end,
    check_environment_reply,
    check_observation,
    is_complete,
    turn_replies,
)


def record_mismatch(record: TrajectoryRecord, context: ReplayContext) -> str | None:
    """Return the first contradiction between a record and its token ids, messages or numbers of tokens, or None."""
    mismatch = token_mismatch if context.rollout.agent is None else agent_mismatch
    return mismatch(record.trajectory, context) or number_mismatch(record)


def token_mismatch(trajectory: Trajectory, context: ReplayContext) -> str | None:
    """Return the first contradiction between a trajectory and its token ids or outcomes, or None."""
    try:
        turns = _replay(trajectory, context)
        _check_turns(trajectory.turns, turns)
        check_arrays(trajectory, turns)
        _check_text(trajectory, context)
    except MismatchError as mismatch:
        return str(mismatch)
    return None


def _replay(trajectory: Trajectory, context: ReplayContext) -> list[Turn]:
    """Find the turns in the token ids, with the scanner that episodes use, and check the replies between them."""
    ids, limit = trajectory.token_ids_T.tolist(), context.rollout.max_response_tokens
    prompt = context.vocabulary.decode_bytes(trajectory.prompt.token_ids)
    at_line_start, position = not prompt or prompt.endswith(b"\n"), 0
    turns: list[Turn] = []
    for reply in turn_replies(trajectory):
        if reply.calls and reply.first_call >= context.rollout.max_tool_calls:
            raise MismatchError(f"call {reply.first_call} exceeds rollout.max_tool_calls")
        calls_left = reply.first_call < context.rollout.max_tool_calls
        turn, scan = _next_turn(ids, position, at_line_start, calls_left, context)
        if reply.calls and turn.stop_reason is not StopReason.CALL:
            raise MismatchError(f"no turn requests call {reply.first_call}")
        if reply.user_messages:
            closed = scan.stop is None and ids[turn.stop - 1] in context.end_token_ids
            check_environment_reply(turn, reply.calls, closed=closed, context=context)
        turns.append(turn)
        expected = check_observation(reply, turn, scan.overshoot or b"", context)
        together: list[ToolCall | UserMessage] = [*reply.calls, *reply.user_messages]
        first = together[0]
        stop, position = turn.stop, first.stop
        if expected is None:
            right = position == limit or context.vocabulary.decode(ids[stop:position]) == first.observation
        else:
            right = position == min(limit, stop + len(expected)) and ids[stop:position] == expected[: position - stop]
        if not right or any((each.start, each.stop) != (stop, position) for each in together):
            name = f"call {reply.first_call}" if reply.calls else f"the environment after turn {len(turns) - 1}"
            raise MismatchError(f"the observation of {name} has the wrong position or tokens")
        at_line_start = first.observation.endswith("\n")
    if position < len(ids) or not turns:
        turns.append(_last_turn(trajectory, ids, position, at_line_start, context))
    else:
        check_end(trajectory, len(turns), context)
    return turns


def _next_turn(
    ids: list[int], start: int, at_line_start: bool, calls_left: bool, context: ReplayContext
) -> tuple[Turn, Scan]:
    """Return the turn that starts at `start`, ended by a call or else by a stop, and its scan."""
    stops = (index + 1 for index in range(start, len(ids)) if ids[index] in context.stop_token_ids)
    end = turn_stop_condition(context.format, context.rollout.stop, calls_left=calls_left)
    scan = Scanner(context.vocabulary, end, at_line_start).feed(ids[start : next(stops, len(ids))])
    turn = make_turn(context.vocabulary, ids, start, scan, StopReason.STOP)
    at_end = scan.overshoot is not None or not context.end_token_ids.isdisjoint(ids[turn.start : turn.stop][-1:])
    asks = calls_left and at_end and scan.stop is None and context.format.parse_calls(turn)
    return replace(turn, stop_reason=StopReason.CALL) if asks else turn, scan


def _last_turn(trajectory: Trajectory, ids: list[int], start: int, at_line_start: bool, context: ReplayContext) -> Turn:
    """Return the turn that no observation follows, after checking its end."""
    calls_left = len(trajectory.tool_calls) < context.rollout.max_tool_calls
    turn, scan = _next_turn(ids, start, at_line_start, calls_left, context)
    full = len(ids) >= context.rollout.max_response_tokens
    reason = trajectory.finish_reason
    if turn.stop < len(ids):
        raise MismatchError("tokens were sampled after the end of a turn")
    if turn.stop_reason is StopReason.CALL:
        void = context.rollout.end_at_void_turn and is_void(context.format, turn)
        if not (void if reason is FinishReason.VOID else full and reason is FinishReason.LENGTH):
            raise MismatchError("a tool call has no result")
        return turn
    if reason is FinishReason.VOID:
        raise MismatchError("the finish reason is void, but the last turn is not a void turn")
    if reason in (FinishReason.ENVIRONMENT, FinishReason.MAX_TURNS):
        raise MismatchError(f"the finish reason is {reason.value}, but the last turn has no reply")
    stop_reason = StopReason(reason.value)
    stopped = scan.overshoot is not None or (bool(ids) and ids[-1] in context.stop_token_ids)
    right = full and scan.stop is None if stop_reason is StopReason.LENGTH else stopped
    if not right:
        raise MismatchError(f"the finish reason is {reason.value}, but the last token does not match it")
    return replace(turn, stop_reason=stop_reason)


def make_turn(vocabulary: Vocabulary, ids: list[int], start: int, scan: Scan, stop_reason: StopReason) -> Turn:
    """Build the turn of the scanned tokens that start at `start`."""
    stop = start + scan.consumed
    data = vocabulary.decode_bytes(ids[start:stop])
    lengths = list(accumulate(len(vocabulary.decode_bytes([each])) for each in ids[start:stop])) if scan.blocks else []
    blocks = []
    for block in scan.blocks:
        first, last = (len(data[:offset].decode("utf-8", errors="replace")) for offset in (block.start, block.stop))
        token = sum(length <= block.start for length in lengths)
        blocks.append(Block(block.code, first, last, token))
    return Turn(start, stop, data.decode("utf-8", errors="replace"), stop_reason, tuple(blocks), cached_tokens=0)


def _check_turns(recorded: Sequence[Turn], turns: Sequence[Turn]) -> None:
    spans, expected = ([(turn.start, turn.stop) for turn in each] for each in (recorded, turns))
    if spans != expected:
        raise MismatchError(f"the turns are at {spans}, expected {expected}")
    for number, (one, replayed) in enumerate(zip(recorded, turns, strict=True)):
        if one.text != replayed.text:
            raise MismatchError(f"the text of turn {number} does not match its tokens")
        if one.stop_reason is not replayed.stop_reason:
            raise MismatchError(
                f"turn {number} ended by {one.stop_reason.value}, expected {replayed.stop_reason.value}"
            )
        if one.blocks != replayed.blocks:
            raise MismatchError(f"turn {number} has the blocks {list(one.blocks)}, expected {list(replayed.blocks)}")


def number_mismatch(record: TrajectoryRecord) -> str | None:
    """Return a message if one of a record's arrays of tokens has a number that no policy gives, or None."""
    for name, numbers in record.token_arrays.items():
        if not np.isfinite(numbers).all():
            return f"{name} has a number that is not finite"
        if name in ("old_logprobs", "ref_logprobs") and (numbers > MAX_LOGPROB).any():
            return f"{name} has a log-probability above 0"
        if name in ("entropies", "collision_probs") and (numbers < -MAX_LOGPROB).any():
            return f"{name} has a number below 0"
        if name == "collision_probs" and (numbers > 1 + MAX_LOGPROB).any():
            return "collision_probs has a number above 1"
    return None


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
        truncated = trajectory.turns[-1].stop_reason is StopReason.LENGTH
        if trajectory.finish_reason is not (FinishReason.LENGTH if truncated else FinishReason.STOP):
            reason = trajectory.finish_reason.value
            raise MismatchError(f"the finish reason is {reason}, but the last turn ended otherwise")
        _check_text(trajectory, context)
    except MismatchError as mismatch:
        return str(mismatch)
    return None


def _check_text(trajectory: Trajectory, context: ReplayContext) -> None:
    if trajectory.text != context.vocabulary.decode(trajectory.token_ids_T.tolist()):
        raise MismatchError("the text does not match the token ids")
    if trajectory.format != context.format.name:
        raise MismatchError(f"the format is {trajectory.format!r}, expected {context.format.name!r}")


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
