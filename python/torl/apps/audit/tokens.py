"""Tokens, turns and calls, from the token ids alone."""

from collections.abc import Sequence
from dataclasses import replace

from torl._core import Scan, Scanner, Vocabulary
from torl.apps.audit.calls import check_observation
from torl.apps.audit.observations import answered_turns, check_end, check_environment_reply
from torl.apps.audit.rules import MismatchError, ReplayContext
from torl.formats.base import is_void, turn_stop_condition
from torl.types import Block, FinishReason, StopReason, ToolCall, Trajectory, Turn, UserMessage


def token_mismatch(trajectory: Trajectory, rules: ReplayContext) -> str | None:
    """What is off in a trajectory; None if all of it is as its token ids and its calls' outcomes say."""
    try:
        turns = _replay(trajectory, rules)
        _check_turns(trajectory.turns, turns)
        check_arrays(trajectory, turns)
    except MismatchError as problem:
        return str(problem)
    if trajectory.text != rules.vocabulary.decode(trajectory.token_ids_T.tolist()):
        return "the text is not that of the token ids"
    if trajectory.format != rules.format.name:
        return f"it was played in format {trajectory.format!r}, not {rules.format.name!r}"
    return None


def _replay(trajectory: Trajectory, rules: ReplayContext) -> list[Turn]:
    """The turns along the token ids, found by the scanner that episodes run on; the calls between them are checked."""
    ids, limit = trajectory.token_ids_T.tolist(), rules.rollout.max_response_tokens
    prompt = rules.vocabulary.decode_bytes(trajectory.prompt.token_ids)
    at_line_start, place = not prompt or prompt.endswith(b"\n"), 0
    turns: list[Turn] = []
    number = 0  # of the calls that were answered
    for calls, said in answered_turns(trajectory):
        if calls and number >= rules.rollout.max_tool_calls:
            raise MismatchError(f"call {number} is beyond the last that the run allows")
        calls_left = number < rules.rollout.max_tool_calls
        turn, scan = _next_turn(ids, place, at_line_start, calls_left, rules)
        if calls and turn.stop_reason is not StopReason.CALL:
            raise MismatchError(f"nothing asks for call {number}")
        if said:
            check_environment_reply(
                turn, calls, closed=scan.stop is None and ids[turn.stop - 1] in rules.end_token_ids, rules=rules
            )
        turns.append(turn)
        expected = check_observation(calls, said, number, turn, scan.overshoot or b"", rules)
        together: list[ToolCall | UserMessage] = [*calls, *said]
        first = together[0]
        stop, place = turn.stop, first.stop
        if expected is None:
            right = place == limit or rules.vocabulary.decode(ids[stop:place]) == first.observation
        else:
            right = place == min(limit, stop + len(expected)) and ids[stop:place] == expected[: place - stop]
        if not right or any((each.start, each.stop) != (stop, place) for each in together):
            what = f"call {number}" if calls else f"the environment behind turn {len(turns) - 1}"
            raise MismatchError(f"the observation of {what} is not where it should be")
        at_line_start = first.observation.endswith("\n")
        number += len(calls)
    if place < len(ids) or not turns:
        turns.append(_last_turn(trajectory, ids, place, at_line_start, rules))
    else:
        check_end(trajectory, len(turns), rules)
    return turns


def _next_turn(
    ids: list[int], place: int, at_line_start: bool, calls_left: bool, rules: ReplayContext
) -> tuple[Turn, Scan]:
    """The turn that begins at `place`, ended by a call or else by a stop, and what the scanner says of it."""
    stops = (index + 1 for index in range(place, len(ids)) if ids[index] in rules.stop_token_ids)
    end = turn_stop_condition(rules.format, rules.rollout.stop, calls_left=calls_left)
    scan = Scanner(rules.vocabulary, end, at_line_start).feed(ids[place : next(stops, len(ids))])
    turn = make_turn(rules.vocabulary, ids, place, place + scan.consumed, scan, StopReason.STOP)
    at_end = scan.overshoot is not None or not rules.end_token_ids.isdisjoint(ids[turn.start : turn.stop][-1:])
    asks = calls_left and at_end and scan.stop is None and rules.format.parse_calls(turn)
    return replace(turn, stop_reason=StopReason.CALL) if asks else turn, scan


def _last_turn(trajectory: Trajectory, ids: list[int], place: int, at_line_start: bool, rules: ReplayContext) -> Turn:
    """The turn that no observation follows, if it may end as it does."""
    calls_left = len(trajectory.tool_calls) < rules.rollout.max_tool_calls
    turn, scan = _next_turn(ids, place, at_line_start, calls_left, rules)
    full = len(ids) >= rules.rollout.max_response_tokens
    reason = trajectory.finish_reason
    if turn.stop < len(ids):
        raise MismatchError("tokens were sampled after the end of a turn")
    if turn.stop_reason is StopReason.CALL:
        void = rules.rollout.end_at_void_turn and is_void(rules.format, turn)
        if not (void if reason is FinishReason.VOID else full and reason is FinishReason.LENGTH):
            raise MismatchError("a tool call was not answered")
        return turn
    if reason is FinishReason.VOID:
        raise MismatchError("its finish reason is void, and no turn asks for a call in vain")
    if reason in (FinishReason.ENVIRONMENT, FinishReason.MAX_TURNS):
        raise MismatchError(f"its finish reason is {reason.value}, and its last turn was not answered")
    ended_by = StopReason(reason.value)
    stopped = scan.overshoot is not None or (bool(ids) and ids[-1] in rules.stop_token_ids)
    right = full and scan.stop is None if ended_by is StopReason.LENGTH else stopped
    if not right:
        raise MismatchError(f"its finish reason is {reason.value}, and its last token is not")
    return replace(turn, stop_reason=ended_by)


def make_turn(vocabulary: Vocabulary, ids: list[int], start: int, stop: int, scan: Scan, ended_by: StopReason) -> Turn:
    data = vocabulary.decode_bytes(ids[start:stop])
    blocks = []
    for block in scan.blocks:
        first, last = (len(data[:offset].decode("utf-8", errors="replace")) for offset in (block.start, block.stop))
        blocks.append(Block(block.code, first, last))
    return Turn(start, stop, data.decode("utf-8", errors="replace"), ended_by, tuple(blocks), cached_tokens=0)


def _check_turns(recorded: Sequence[Turn], turns: Sequence[Turn]) -> None:
    places = [(turn.start, turn.stop) for turn in turns]
    if [(turn.start, turn.stop) for turn in recorded] != places:
        raise MismatchError(f"turns are {[(turn.start, turn.stop) for turn in recorded]}, not {places}")
    for number, (one, again) in enumerate(zip(recorded, turns, strict=True)):
        if one.text != again.text:
            raise MismatchError(f"the text of turn {number} is not that of its tokens")
        if one.stop_reason is not again.stop_reason:
            raise MismatchError(f"turn {number} was ended by {one.stop_reason.value}, not {again.stop_reason.value}")
        if one.blocks != again.blocks:
            raise MismatchError(f"turn {number} has the blocks {list(one.blocks)}, not {list(again.blocks)}")


def check_arrays(trajectory: Trajectory, turns: Sequence[Turn]) -> None:
    sampled = [False] * len(trajectory)
    for turn in turns:
        sampled[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
    mask = trajectory.loss_mask_T.tolist()
    if mask != sampled:
        place = next(place for place, (a, b) in enumerate(zip(mask, sampled, strict=True)) if a != b)
        raise MismatchError(f"the loss mask is {mask[place]} at token {place}")
    observed = ~trajectory.loss_mask_T
    if trajectory.rollout_logprobs_T[observed].any() or (trajectory.policy_versions_T[observed] != -1).any():
        raise MismatchError("an observed token has a logprob or a policy version")
