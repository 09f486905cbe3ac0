"""Trajectories of agent programs, from their token ids, the results that the programs gave and what they said."""

from collections.abc import Sequence

from torl._core import Scanner
from torl.apps.audit.outcomes import is_complete
from torl.apps.audit.rules import MismatchError, ReplayContext
from torl.apps.audit.tokens import check_arrays, make_turn
from torl.formats import ChatFormat, require_chat_format
from torl.formats.base import turn_stop_condition
from torl.formats.chat.base import ChatCall
from torl.types import FinishReason, Markup, StopReason, ToolCall, Trajectory, Turn


def agent_mismatch(trajectory: Trajectory, rules: ReplayContext) -> str | None:
    """What is off in a trajectory; None if all of it is as its token ids and the program's words say.

    Where a turn ends that a request's own limit or stop strings have cut is in no record: it is taken from the turn.
    """
    ids = trajectory.token_ids_T.tolist()
    try:
        if not trajectory.turns or not trajectory.prompt.token_ids:
            raise MismatchError("it has no turn, or no prompt")
        place = 0
        for number, turn in enumerate(trajectory.turns):
            if number:
                place += _inserted(trajectory, trajectory.turns[number - 1], ids, turn.start, rules)
            if turn.start != place:
                raise MismatchError(f"turn {number} begins at {turn.start}, not {place}")
            _check_turn(turn, number, ids, rules, prompt=trajectory.prompt.token_ids)
            place = turn.stop
        if place != len(ids):
            raise MismatchError("tokens stand behind the last turn")
        check_arrays(trajectory, trajectory.turns)
    except MismatchError as problem:
        return str(problem)
    cut = trajectory.turns[-1].stop_reason is StopReason.LENGTH
    if trajectory.finish_reason is not (FinishReason.LENGTH if cut else FinishReason.STOP):
        return f"its finish reason is {trajectory.finish_reason.value}, and its last turn was not ended so"
    if trajectory.text != rules.vocabulary.decode(ids):
        return "the text is not that of the token ids"
    if trajectory.format != rules.format.name:
        return f"it was played in format {trajectory.format!r}, not {rules.format.name!r}"
    return None


def _check_turn(turn: Turn, number: int, ids: list[int], rules: ReplayContext, prompt: Sequence[int]) -> None:
    """Its end, and what was found in it."""
    own, form = ids[turn.start : turn.stop], rules.format
    if not own or not rules.stop_token_ids.isdisjoint(own[:-1]):
        raise MismatchError(f"turn {number} goes on behind an end token")
    before = rules.vocabulary.decode_bytes([*prompt, *ids[: turn.start]])
    end = turn_stop_condition(form, rules.rollout.stop, calls_left=True)
    scan = Scanner(rules.vocabulary, end, not before or before.endswith(b"\n")).feed(own)
    if scan.consumed != len(own):
        raise MismatchError(f"turn {number} goes on behind its end")
    again = make_turn(rules.vocabulary, ids, turn.start, turn.stop, scan, turn.stop_reason)
    if (turn.text, turn.blocks) != (again.text, again.blocks):
        raise MismatchError(f"turn {number} does not hold what its tokens say")
    stopped = own[-1] in rules.stop_token_ids
    if turn.stop_reason is StopReason.LENGTH and (stopped or scan.overshoot is not None):
        raise MismatchError(f"turn {number} was not cut")
    if turn.stop_reason is StopReason.CALL and not (own[-1] in rules.end_token_ids and form.parse_calls(again)):
        raise MismatchError(f"turn {number} asks for nothing")


def _inserted(trajectory: Trajectory, turn: Turn, ids: list[int], stop: int, rules: ReplayContext) -> int:
    """How many tokens stand between a turn and the next one, which begins at `stop`, if they are the right ones."""
    form = require_chat_format(rules.format)
    calls, said = trajectory.calls_in(turn), trajectory.user_messages_after(turn)
    if not calls and not said:
        raise MismatchError(f"nothing was said between the turn that ends at {turn.stop} and the next one")
    places = {(call.start, call.stop) for call in calls}
    places |= {(each.start, each.stop) for each in trajectory.user_messages if each.start == turn.stop}
    if places != {(turn.stop, stop)}:
        raise MismatchError(f"what was put in at {turn.stop} is not where it should be")
    if not all(is_complete(call.outcome) for call in calls):
        return stop - turn.stop  # the record cuts a result
    parts = form.continuation(_answered(form, turn, calls), [call.outcome.text for call in calls], said)
    ended = ids[turn.stop - 1] in rules.end_token_ids
    expected, text = rules.encoder.encode_observation(parts if ended else [Markup(form.message_end), *parts])
    shown = [call.observation for call in calls]
    shown += [each.observation for each in trajectory.user_messages if each.start == turn.stop]
    if ids[turn.stop : stop] != expected or set(shown) != {text}:
        raise MismatchError(f"what was put in at {turn.stop} is not what the program said")
    return len(expected)


def _answered(form: ChatFormat, turn: Turn, calls: Sequence[ToolCall]) -> list[ChatCall]:
    """The calls of a turn that these are the answers of, in the turn's order."""
    written, found = iter(form.calls(turn)), []
    for call in calls:
        match = next((each for each in written if each.request == call.request), None)
        if match is None:
            raise MismatchError(f"the turn that ends at {turn.stop} has not made a call that was answered")
        found.append(match)
    return found
