"""Tokens, turns and calls, from the token ids alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torl._core import Scan, Scanner, Vocabulary
from torl.audit.outcomes import is_whole, python_problem
from torl.config import RolloutConfig
from torl.formats import Format
from torl.formats.base import NO_REQUEST, turn_end
from torl.text.answers import find_answer
from torl.text.tokenizer import TextEncoder, load_tokenizer, stop_token_ids
from torl.text.vocabulary import build_vocabulary
from torl.tools import PythonTool
from torl.types import Block, FinishReason, ToolCall, Trajectory, Turn, TurnEnding


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """What the episodes of a run followed."""

    format: Format
    vocabulary: Vocabulary  # of the model's tokenizer
    encoder: TextEncoder  # that encoded the observations
    stop_token_ids: frozenset[int]
    python_tools: frozenset[str]  # the names of the tools that run Python
    rollout: RolloutConfig

    @classmethod
    def of_run(cls, rollout: RolloutConfig, model: Path) -> "EpisodeRules":
        """The rules of a configuration and its model.

        Raises:
            DataError: the model's tokenizer cannot be read.
        """
        tokenizer = load_tokenizer(model)
        vocabulary = build_vocabulary(tokenizer)
        python = (
            name
            for name, tool in rollout.tools.items()
            if isinstance(tool.target, type) and issubclass(tool.target, PythonTool)
        )
        return cls(
            format=rollout.format.make(),
            vocabulary=vocabulary,
            encoder=TextEncoder(tokenizer, vocabulary),
            stop_token_ids=frozenset(stop_token_ids(model, tokenizer)),
            python_tools=frozenset(python),
            rollout=rollout,
        )


class _ProblemError(Exception):
    """Something is off in a trajectory."""


def token_problem(trajectory: Trajectory, rules: EpisodeRules) -> str | None:
    """What is off in a trajectory; None if all of it is as its token ids and its calls' outcomes say."""
    try:
        turns = _replay(trajectory, rules)
        _check_turns(trajectory.turns, turns)
        _check_arrays(trajectory, turns)
    except _ProblemError as problem:
        return str(problem)
    if trajectory.text != rules.vocabulary.decode(trajectory.token_ids_T.tolist()):
        return "the text is not that of the token ids"
    if trajectory.format != rules.format.name:
        return f"it was played in format {trajectory.format!r}, not {rules.format.name!r}"
    return None


def _replay(trajectory: Trajectory, rules: EpisodeRules) -> list[Turn]:
    """The turns along the token ids, found by the scanner that episodes run on; the calls between them are checked."""
    ids, limit = trajectory.token_ids_T.tolist(), rules.rollout.max_response_tokens
    prompt = rules.vocabulary.decode_bytes(trajectory.prompt.token_ids)
    at_line_start, place = not prompt or prompt.endswith(b"\n"), 0
    turns: list[Turn] = []
    for number, call in enumerate(trajectory.tool_calls):
        if number >= rules.rollout.max_tool_calls:
            raise _ProblemError(f"call {number} is beyond the last that the run allows")
        end = turn_end(rules.format, rules.rollout.stop, calls_left=True)
        scan = Scanner(rules.vocabulary, end, at_line_start).feed(ids[place:])
        if scan.overshoot is None or scan.stop is not None:
            raise _ProblemError(f"nothing asks for call {number}")
        stop = place + scan.consumed
        turns.append(_turn(rules.vocabulary, ids, place, stop, scan, TurnEnding.CALL))
        _check_call(call, number, turns[-1], scan.overshoot, rules)
        expected = rules.encoder.encode(call.observation)[: limit - stop]
        place = stop + len(expected)
        if ids[stop:place] != expected or (call.start, call.stop) != (stop, place):
            raise _ProblemError(f"the observation of call {number} is not where it should be")
        at_line_start = call.observation.endswith("\n")
    if place < len(ids) or not turns:
        turns.append(_last_turn(trajectory, ids, place, at_line_start, rules))
    elif trajectory.finish_reason is not FinishReason.LENGTH or len(ids) < limit:
        raise _ProblemError("no turn follows the last observation, though the limit was not reached")
    return turns


def _last_turn(trajectory: Trajectory, ids: list[int], place: int, at_line_start: bool, rules: EpisodeRules) -> Turn:
    """The turn that no observation follows, if it may end as it does."""
    calls_left = len(trajectory.tool_calls) < rules.rollout.max_tool_calls
    end = turn_end(rules.format, rules.rollout.stop, calls_left=calls_left)
    scan = Scanner(rules.vocabulary, end, at_line_start).feed(ids[place:])
    full = len(ids) >= rules.rollout.max_response_tokens
    reason = trajectory.finish_reason
    if scan.overshoot is not None and place + scan.consumed < len(ids):
        raise _ProblemError("tokens were sampled after the end of a turn")
    if scan.overshoot is not None and scan.stop is None:
        turn = _turn(rules.vocabulary, ids, place, place + scan.consumed, scan, TurnEnding.CALL)
        void = rules.rollout.end_at_void_turn and rules.format.request(turn) is None and find_answer(turn.text) is None
        if not (void if reason is FinishReason.VOID else full and reason is FinishReason.LENGTH):
            raise _ProblemError("a tool call was not answered")
        return turn
    if reason is FinishReason.VOID:
        raise _ProblemError("its finish reason is void, and no turn asks for a call in vain")
    ended_by = TurnEnding(reason.value)
    stopped = scan.stop is not None or (bool(ids) and ids[-1] in rules.stop_token_ids)
    right = full and scan.stop is None if ended_by is TurnEnding.LENGTH else stopped
    if not right:
        raise _ProblemError(f"its finish reason is {reason.value}, and its last token is not")
    return _turn(rules.vocabulary, ids, place, len(ids), scan, ended_by)


def _turn(vocabulary: Vocabulary, ids: list[int], start: int, stop: int, scan: Scan, ended_by: TurnEnding) -> Turn:
    data = vocabulary.decode_bytes(ids[start:stop])
    blocks = []
    for block in scan.blocks:
        first, last = (len(data[:offset].decode("utf-8", errors="replace")) for offset in (block.start, block.stop))
        blocks.append(Block(block.code, first, last))
    return Turn(start, stop, data.decode("utf-8", errors="replace"), ended_by, tuple(blocks), cached_tokens=0)


def _check_call(call: ToolCall, number: int, turn: Turn, overshoot: bytes, rules: EpisodeRules) -> None:
    request, outcome = rules.format.request(turn), call.outcome
    if request != call.request:
        raise _ProblemError(f"call {number} ran other code than was written")
    if request is None and outcome != NO_REQUEST:
        raise _ProblemError(f"call {number} asked for nothing, and has an outcome")
    if not is_whole(outcome):
        return
    answer = rules.format.answer(outcome, overshoot, rules.encoder.fits)
    if rules.encoder.observe(answer)[1] != call.observation:
        raise _ProblemError(f"the observation of call {number} is not what its code gave")
    if request is not None and request.tool in rules.python_tools and (problem := python_problem(outcome)):
        raise _ProblemError(f"the outcome of call {number} contradicts itself: {problem}")


def _check_turns(recorded: Sequence[Turn], turns: Sequence[Turn]) -> None:
    places = [(turn.start, turn.stop) for turn in turns]
    if [(turn.start, turn.stop) for turn in recorded] != places:
        raise _ProblemError(f"turns are {[(turn.start, turn.stop) for turn in recorded]}, not {places}")
    for number, (one, again) in enumerate(zip(recorded, turns, strict=True)):
        if one.text != again.text:
            raise _ProblemError(f"the text of turn {number} is not that of its tokens")
        if one.ended_by is not again.ended_by:
            raise _ProblemError(f"turn {number} was ended by {one.ended_by.value}, not {again.ended_by.value}")
        if one.blocks != again.blocks:
            raise _ProblemError(f"turn {number} has the blocks {list(one.blocks)}, not {list(again.blocks)}")


def _check_arrays(trajectory: Trajectory, turns: Sequence[Turn]) -> None:
    sampled = [False] * len(trajectory)
    for turn in turns:
        sampled[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
    mask = trajectory.loss_mask_T.tolist()
    if mask != sampled:
        place = next(place for place, (a, b) in enumerate(zip(mask, sampled, strict=True)) if a != b)
        raise _ProblemError(f"the loss mask is {mask[place]} at token {place}")
    observed = ~trajectory.loss_mask_T
    if trajectory.rollout_logprobs_T[observed].any() or (trajectory.policy_versions_T[observed] != -1).any():
        raise _ProblemError("an observed token has a logprob or a policy version")
