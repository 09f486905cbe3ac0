"""Token sequences of one episode, and where a request continues one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torl._core import TrajectoryBuilder
from torl.formats.chat.base import ChatCall
from torl.rollout.agents.histories import conversation_key, result_number
from torl.rollout.agents.requests import ChatRequest, RequestError
from torl.types import ToolCall, Turn, UserMessage


@dataclass(slots=True)
class TokenSequence:
    """A trajectory while it grows: a prompt, then turns and what was put in between them."""

    prompt: list[int]
    builder: TrajectoryBuilder
    turns: list[Turn] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    user_messages: list[UserMessage] = field(default_factory=list)
    last: int = 0  # the number of its last turn among those of the episode

    @classmethod
    def begin(cls, prompt: Sequence[int]) -> "TokenSequence":
        """With nothing sampled yet."""
        return cls(list(prompt), TrajectoryBuilder(prompt))


@dataclass(slots=True)
class Message:
    """A message that the model sampled, as the program was told it: where a request may continue."""

    thread: TokenSequence
    turn: Turn
    calls: Sequence[ChatCall]  # that the program was told of, in order
    ids: Sequence[str]  # of these calls
    ended: bool  # by one of its end tokens; otherwise it was cut
    sent_at: float  # time.perf_counter
    continued: bool = False  # in its thread: what else continues it branches

    def context(self) -> list[int]:
        """All tokens up to its end."""
        thread = self.thread
        return thread.builder.context()[: len(thread.prompt) + self.turn.stop]


@dataclass(frozen=True, slots=True)
class Suffix:
    """What a request adds to a sampled message: results of its calls, then what a user says."""

    results: Mapping[int, str]  # by the number of the call, in order
    user_messages: tuple[str, ...]

    @property
    def length(self) -> int:
        """Characters."""
        return sum(map(len, (*self.results.values(), *self.user_messages)))


class Conversations:
    """The sampled messages of an episode, by the conversations that end with them."""

    def __init__(self) -> None:
        self._told: dict[str, list[Message]] = {}

    def add(self, request: ChatRequest, answer: Mapping[str, Any], message: Message) -> None:
        """Remember what a request was answered with."""
        key = conversation_key([*request.messages, answer], request.tools)
        self._told.setdefault(key, []).append(message)

    def continued(self, request: ChatRequest) -> tuple[Message, Suffix] | None:
        """The sampled message that a request continues, and by what; None where it begins a token sequence.

        It does where the program has changed anything before the last message of the model, or where it adds something
        else than results and words of a user, in this order.

        Raises:
            RequestError: it holds results of calls that the message has not made, or two of one call.
        """
        last = max((place for place, each in enumerate(request.messages) if each["role"] == "assistant"), default=-1)
        told = self._told.get(conversation_key(request.messages[: last + 1], request.tools), ())
        added = request.messages[last + 1 :]
        roles = [each["role"] for each in added]
        if not told or not roles or roles != sorted(roles) or not {*roles} <= {"tool", "user"}:
            return None
        # Of several that read the same, the one whose ids came back; else the latest that nobody has continued.
        ids = [call["id"] for call in request.messages[last].get("tool_calls", ())]
        message = max(enumerate(told), key=lambda each: (each[1].ids == ids, not each[1].continued, each[0]))[1]
        results: dict[int, str] = {}
        for each in added[: roles.count("tool")]:
            number = result_number(each, message.ids, len(results))
            if number >= len(message.calls) or number in results:
                raise RequestError("a message of a tool is the one result of a call of the message before", "messages")
            results[number] = each["content"]
        said = tuple(each["content"] for each in added[len(results) :])
        return message, Suffix(dict(sorted(results.items())), said)
