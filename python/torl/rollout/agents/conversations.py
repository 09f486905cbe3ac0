"""The token sequences of an episode, and the sampled message that a request continues."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.base.types import Turn
from torl.components.formats.chat.calls import ChatCall
from torl.rollout.agents.requests import ChatRequest, RequestError
from torl.rollout.transcript import Transcript


@dataclass(slots=True)
class TokenSequence(Transcript):
    """One of the token sequences of an episode."""

    last_turn: int = 0
    """Number of its last turn in the episode."""


@dataclass(slots=True)
class Message:
    """A sampled message as the program received it, which a later request may continue."""

    sequence: TokenSequence
    turn: Turn
    calls: Sequence[ChatCall]
    """The valid calls, which the program received."""
    ids: Sequence[str]
    """The ids of these calls."""
    ended: bool
    """Whether an end token ended the message. Otherwise it was cut."""
    sent_at: float
    """Time at which the program received it (`time.perf_counter`)."""
    continued: bool = False
    """Whether its sequence continues after it, so that another continuation branches."""

    def context(self) -> list[int]:
        """All tokens up to the end of the message."""
        sequence = self.sequence
        return sequence.builder.context()[: len(sequence.prompt.token_ids) + self.turn.stop]


@dataclass(frozen=True, slots=True)
class Suffix:
    """The messages that a request adds to a sampled message: results of its calls, then messages of the user."""

    results: Mapping[int, str]
    """Results by the number of their call, in order."""
    user_messages: tuple[str, ...]

    @property
    def length(self) -> int:
        """Number of characters."""
        return sum(map(len, (*self.results.values(), *self.user_messages)))


class Conversations:
    """The sampled messages of an episode, by the conversations that end with them."""

    def __init__(self) -> None:
        self._messages: dict[str, list[Message]] = {}

    def add(self, request: ChatRequest, reply: Mapping[str, Any], message: Message) -> None:
        """Record the reply to a request."""
        key = conversation_key([*request.messages, reply], request.tools)
        self._messages.setdefault(key, []).append(message)

    def continued(self, request: ChatRequest) -> tuple[Message, Suffix] | None:
        """Find the sampled message that a request continues, and the suffix that the request adds.

        Returns None if the request starts a new token sequence: if the program changed a message before the last
        message of the model, or added something other than results and then messages of the user.

        Raises:
            RequestError: The request contains results without a call, or two results of one call.
        """
        last = max((place for place, each in enumerate(request.messages) if each["role"] == "assistant"), default=-1)
        candidates = self._messages.get(conversation_key(request.messages[: last + 1], request.tools), ())
        added = request.messages[last + 1 :]
        roles = [each["role"] for each in added]
        if not candidates or not roles or roles != sorted(roles) or not {*roles} <= {"tool", "user"}:
            return None
        # Of equal messages: the one with the same call ids, or else the latest that is not continued.
        ids = [call["id"] for call in request.messages[last].get("tool_calls", ())]
        message = max(enumerate(candidates), key=lambda each: (each[1].ids == ids, not each[1].continued, each[0]))[1]
        results: dict[int, str] = {}
        for each in added[: roles.count("tool")]:
            number = result_number(each, message.ids, len(results))
            if number >= len(message.calls) or number in results:
                raise RequestError("a message of a tool is the one result of a call of the message before", "messages")
            results[number] = each["content"]
        user_messages = tuple(each["content"] for each in added[len(results) :])
        return message, Suffix(dict(sorted(results.items())), user_messages)


def conversation_key(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> str:
    """A key that is equal for equivalent conversations.

    It ignores ids of calls, thinking, the order of a turn's results, and white space around the model's messages and in
    the arguments of its calls.
    """
    parts: list[Any] = [list(tools)]
    results: list[tuple[int, str]] = []
    ids: list[str] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            results.append((result_number(message, ids, len(results)), content))
            continue
        if results:
            parts.append(["tool", sorted(results)])
            results = []
        if role == "assistant":
            calls = message.get("tool_calls", [])
            ids = [call["id"] for call in calls]
            parts.append([role, content.strip(), [call["function"] for call in calls]])
        else:
            parts.append([role, content])
    text = json.dumps([*parts, ["tool", sorted(results)]], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def result_number(message: Mapping[str, Any], ids: Sequence[str], place: int) -> int:
    """The number of the call that a result belongs to: by its id, or by its place if the id is unknown."""
    return ids.index(message["tool_call_id"]) if message["tool_call_id"] in ids else place
