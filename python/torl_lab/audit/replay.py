"""The context that episodes are replayed in, and the checks of their calls, outcomes, replies and arrays of tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from torl._core import Vocabulary
from torl.base.types import (
    FinishReason,
    Outcome,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
    UserMessage,
)
from torl.components.formats import Format
from torl.components.formats.format import limit_calls
from torl.components.text.tokenizer import PlainTextEncoder, control_token_ids, load_tokenizer, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.components.tools import PythonTool
from torl.rollout.observation import observation_text
from torl.run.config import RolloutConfig
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS
from torl_lab.audit.checks import MAX_LOGPROB


class MismatchError(Exception):
    """A trajectory contradicts its own records."""


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """The format, the tokenizer and the limits that a run's episodes were played with."""

    format: Format
    vocabulary: Vocabulary
    encoder: PlainTextEncoder
    """Encoder of the observations."""
    stop_token_ids: frozenset[int]
    python_tools: frozenset[str]
    """Names of the tools that run Python."""
    rollout: RolloutConfig
    end_token_ids: frozenset[int] = frozenset()
    """The stop tokens that belong to the format."""

    @classmethod
    def from_config(cls, rollout: RolloutConfig, model: Path) -> "ReplayContext":
        """Build the context of a configuration and its model.

        Raises:
            DataError: The model's tokenizer cannot be read.
        """
        tokenizer = load_tokenizer(model)
        format: Format = rollout.format.make()
        vocabulary = build_vocabulary(tokenizer, format.visible_tokens)
        end_token_ids = frozenset(control_token_ids(tokenizer, format.end_tokens))
        python = (
            name
            for name, tool in rollout.tools.items()
            if isinstance(tool.target, type) and issubclass(tool.target, PythonTool)
        )
        return cls(
            format=format,
            vocabulary=vocabulary,
            encoder=PlainTextEncoder(tokenizer, vocabulary),
            stop_token_ids=frozenset(stop_token_ids(model, tokenizer, format.end_tokens)),
            python_tools=frozenset(python),
            rollout=rollout,
            end_token_ids=end_token_ids,
        )


@dataclass(frozen=True, slots=True)
class TurnReply:
    """The recorded results of a turn's calls and the environment's messages after them."""

    calls: list[ToolCall]
    user_messages: list[UserMessage]
    first_call: int
    """Index of the first call in the response."""


def turn_replies(trajectory: Trajectory) -> Iterator[TurnReply]:
    """Yield the reply to each turn that has one."""
    everything: list[ToolCall | UserMessage] = [*trajectory.tool_calls, *trajectory.user_messages]
    first_call = 0
    for _, grouped in groupby(sorted(everything, key=lambda each: each.start), key=lambda each: each.start):
        together = list(grouped)
        calls = [each for each in together if isinstance(each, ToolCall)]
        yield TurnReply(calls, [each for each in together if isinstance(each, UserMessage)], first_call)
        first_call += len(calls)


def check_observation(reply: TurnReply, turn: Turn, overshoot: bytes, context: ReplayContext) -> list[int] | None:
    """Check the calls of a turn, and return the token ids of the observation after it.

    `overshoot` is the part of the turn's last token after its end. The result is None if the record truncates an
    observation with markup.

    Raises:
        MismatchError: The calls contradict the turn, their outcomes or their observation.
    """
    calls, messages, number = reply.calls, reply.user_messages, reply.first_call
    requests = limit_calls(context.format.parse_calls(turn), context.rollout.max_tool_calls - number) if calls else []
    if len(requests) != len(calls):
        raise MismatchError(f"the turn requests {len(requests)} calls, but {len(calls)} have results (call {number})")
    for index, (call, expected) in enumerate(zip(calls, requests, strict=True), number):
        request = expected if isinstance(expected, ToolRequest) else None
        if request != call.request:
            raise MismatchError(f"the request of call {index} differs from the text of its turn")
        if request is None and call.outcome != expected:
            raise MismatchError(f"the outcome of the invalid call {index} is not the error of the format")
    observations = {call.observation for call in calls} | {message.observation for message in messages}
    if len(observations) != 1:
        raise MismatchError(f"the results from call {number} have different observations")
    outcomes = [call.outcome for call in calls]
    user_messages = [message.text for message in messages]
    text = observation_text(context.format, context.encoder, turn, outcomes, overshoot, user_messages)
    if not all(is_complete(call.outcome) for call in calls):
        return context.encoder.encode(calls[0].observation) if isinstance(text, str) else None
    token_ids, observation = context.encoder.encode_observation(text)
    if observations != {observation}:
        raise MismatchError(f"the observation of call {number} does not match its outcome")
    for index, call in enumerate(calls, number):
        is_python = call.request is not None and call.request.tool in context.python_tools
        if is_python and (mismatch := python_mismatch(call.outcome)):
            raise MismatchError(f"the outcome of call {index} is inconsistent: {mismatch}")
    return token_ids


def check_environment_reply(turn: Turn, calls: Sequence[ToolCall], *, closed: bool, context: ReplayContext) -> None:
    """Check that the environment was allowed to reply to a turn with these calls, `closed` by an end token or not.

    Raises:
        MismatchError: The run has no environment, or the turn is not a complete message without calls.
    """
    if context.rollout.environment is None:
        raise MismatchError("the environment sent a message, but the run has no environment")
    if not calls and (turn.stop_reason is StopReason.CALL or not closed):
        raise MismatchError("the environment replied to a message that calls a tool or lacks its end token")


def check_end(trajectory: Trajectory, turns: int, context: ReplayContext) -> None:
    """Check that a response may end with an observation after `turns` turns.

    Raises:
        MismatchError: The finish reason does not allow it.
    """
    reason, rollout = trajectory.finish_reason, context.rollout
    if reason is FinishReason.ENVIRONMENT:
        if rollout.environment is None:
            raise MismatchError("the environment ended the episode, but the run has no environment")
    elif reason is FinishReason.MAX_TURNS:
        if turns != rollout.max_turns:
            raise MismatchError(f"the episode ended after {turns} turns, but rollout.max_turns = {rollout.max_turns}")
    elif reason is not FinishReason.LENGTH or len(trajectory) < rollout.max_response_tokens:
        raise MismatchError("no turn follows the last observation, but the token limit was not reached")


def is_complete(outcome: Outcome) -> bool:
    """Whether the record contains all texts of an outcome without truncation."""
    return all(map(_is_whole, (outcome.text, outcome.error, outcome.details)))


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) < MAX_OUTPUT_CHARACTERS
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return all(map(_is_whole, members))


def python_mismatch(outcome: Outcome) -> str | None:
    """Return a message if the text or the error of a Python outcome does not follow from its details.

    The text of a successful run is its printed output. The text of a failed run is the line of the traceback with the
    exception, or the argument of `sys.exit`, which leaves no traceback. The text of an interrupted run is empty.
    """
    stdout, traceback = outcome.details.get("stdout"), outcome.details.get("traceback")
    if stdout is None:
        return "it succeeded without a run" if outcome.ok else None
    if outcome.ok:
        return None if (outcome.text, outcome.error) == (stdout, None) else "its text differs from the printed output"
    if outcome.error is None:
        return "it has a text but no exception" if outcome.text or traceback else None
    if not traceback:
        return None if outcome.text.startswith(outcome.error) else "its text does not start with its error"
    # A group's lines have a margin, and a class may be named with its module.
    lines = {line.lstrip(" |+") for line in traceback.splitlines()}
    named = outcome.text.partition(":")[0].endswith(outcome.error)
    if not (named and outcome.text in lines | {outcome.error}) or outcome.error not in traceback:
        return "its text differs from the exception line of its traceback"
    return None


def check_arrays(trajectory: Trajectory, turns: Sequence[Turn]) -> None:
    """Check the loss mask, the log-probabilities and the policy versions of a trajectory against its turns.

    Raises:
        MismatchError: The mask does not cover exactly the turns, an observation token has a number, or a
            log-probability is impossible.
    """
    sampled = [False] * len(trajectory)
    for turn in turns:
        sampled[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
    mask = trajectory.loss_mask_T.tolist()
    if mask != sampled:
        index = next(index for index, (a, b) in enumerate(zip(mask, sampled, strict=True)) if a != b)
        raise MismatchError(f"the loss mask is {mask[index]} at token {index}")
    if not (trajectory.rollout_logprobs_T <= MAX_LOGPROB).all() or np.isinf(trajectory.rollout_logprobs_T).any():
        raise MismatchError("a log-probability is above 0 or not finite")
    observed = ~trajectory.loss_mask_T
    if trajectory.rollout_logprobs_T[observed].any() or (trajectory.policy_versions_T[observed] != -1).any():
        raise MismatchError("an observation token has a logprob or a policy version")
