"""The base of the formats of chat models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torl._core import StopCondition
from torl.errors import ConfigError
from torl.formats.base import Format
from torl.formats.chat.calls import TRUNCATED_CALL
from torl.formats.observation import ErrorStyle, render_outcome
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Markup, ObservationText, Outcome, ToolRequest, Turn

_THINKING_BEGINS, _THINKING_ENDS = "<think>", "</think>"
_THINKING_TAG = re.compile("</?think>")


class ChatOptions(Section):
    """Options of the formats of chat models."""

    error_style: ErrorStyle = "last_line"
    max_observation_characters: PositiveInt = 1024
    """Limit on the characters of each result: a longer one keeps its head and tail, half of this each."""
    generation_prefix: str = ""
    """Text that the template puts after the header of each model message, such as "<think>\\n" if it opens the thinking
    (R1, Qwen3's Thinking models)."""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call as a chat model wrote it.

    Attributes:
        request: The parsed call.
        name: Name that the result is addressed with, in templates that have one.
        id: Id that the model gave the call, in templates that repeat it.
    """

    request: ToolRequest | MalformedCall
    name: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The tool names that a chat format can write: a pattern, without the markup of calls."""

    pattern: str
    markup: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or re.fullmatch(self.pattern, name, re.DOTALL) is None:
            return False
        return not any(markup in name for markup in self.markup)


class ChatFormat(Format):
    """Base of formats whose calls are part of a message that the model's own end token ends.

    Sampled text stays as it is. The text between its end token and the first token of the next message is spliced in as
    the family's chat template has it: results, user messages and the next header. Tool output and user messages stay
    plain text, even if they spell a control token. A message without calls is the last one, unless an environment
    replies to it.

    Attributes:
        tags: Opening and closing tag of each call, in families that close a call before the end of the turn.
        header: Text that the template puts before each message of the model.
        continues_after_results: Whether the model's message continues after results, without a header between them.
        tool_names: Pattern of the tool names that a call can be written for.
    """

    tags: ClassVar[tuple[str, str] | None] = None
    header: ClassVar[str] = ""
    continues_after_results: ClassVar[bool] = False
    tool_names: ClassVar[str] = ".+"

    def __init__(self, options: ChatOptions | None = None) -> None:
        self.options = options or ChatOptions()
        self.every_block_is_a_call = self.tags is not None
        self.call_opening = None if self.tags is None else self.tags[0]
        self.tools = ToolNames(self.tool_names, (*self.control_tokens, *(self.tags or ())))

    @property
    def message_end(self) -> str:
        """Text that the template puts after a message of the model without calls."""
        return self.end_tokens[0]

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """Return the calls of a turn, in order: those between the tags, and one that was not closed.

        Tags inside the model's thinking are not calls.
        """
        assert self.tags is not None, f"{type(self).__name__} has no tags: it reads the text of a turn"
        opening, closing = self.tags
        *closed, rest = self._without_thinking(turn).split(closing)
        calls = [self.parse_call(text.partition(opening)[2]) for text in closed if opening in text]
        if opening in rest:
            calls.append(ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call was not closed by {closing}")))
        return calls

    def _thinking_tags(self, turn: Turn) -> list[re.Match[str]]:
        """Return the places of <think> and </think> outside the text of a call."""
        found = list(_THINKING_TAG.finditer(turn.text))
        calls = [block for block in turn.blocks if self.speculative_call(block.code)] if found else []
        return [tag for tag in found if not any(call.start <= tag.start() < call.stop for call in calls)]

    def _message(self, turn: Turn) -> str:
        """Return the text after the thinking, which ends at the first </think>."""
        end = next((tag.end() for tag in self._thinking_tags(turn) if tag[0] == _THINKING_ENDS), 0)
        return turn.text[end:]

    def _without_thinking(self, turn: Turn) -> str:
        """Return the text without any thinking, also one that is not closed. The template may have opened the first."""
        tags, parts, start = self._thinking_tags(turn), list[str](), 0
        opened = _THINKING_TAG.findall(self.options.generation_prefix)[-1:] == [_THINKING_BEGINS]
        thinks = opened or (bool(tags) and tags[0][0] == _THINKING_ENDS)
        for tag in tags:
            if thinks and tag[0] == _THINKING_ENDS:
                thinks, start = False, tag.end()
            elif not thinks and tag[0] == _THINKING_BEGINS:
                thinks = True
                parts.append(turn.text[start : tag.start()])
        return "".join(parts if thinks else [*parts, turn.text[start:]])

    def parse_call(self, text: str) -> ChatCall:
        """Return the call of the text between two tags."""
        raise NotImplementedError(f"{type(self).__name__} has tags and no parse_call")

    def content(self, turn: Turn) -> str:
        """Return a message without its thinking, its calls and surrounding whitespace."""
        text = self._message(turn)
        return (text.partition(self.tags[0])[0] if self.tags and self.calls(turn) else text).strip()

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """Return the results of calls, starting after the end token of the message that made them.

        `contents` has the text of each result. Only `Markup` can become control tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} has no render_results")

    def render_user(self, content: str) -> list[str | Markup]:
        """Return a user message, as it follows an end token, results or another user message."""
        raise NotImplementedError(f"{type(self).__name__} has no render_user")

    def continuation(
        self, calls: Sequence[ChatCall], contents: Sequence[str], user_messages: Sequence[str] = ()
    ) -> list[str | Markup]:
        """Return the text between the end token of a message and the first token of the model's next message.

        Args:
            calls: Calls of the message.
            contents: Text of each result.
            user_messages: User messages after the results.
        """
        parts = self.render_results(calls, contents) if calls else []
        for content in user_messages:
            parts += self.render_user(content)
        if self.continues_after_results and not user_messages:
            return parts
        return [*parts, Markup(self.header + self.options.generation_prefix)]

    def stop_condition(self) -> StopCondition:
        # The end token ends the turn; the tags let the engine report closed calls.
        return (
            StopCondition.never() if self.tags is None else StopCondition.tagged(*(tag.encode() for tag in self.tags))
        )

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        return [call.request for call in self.calls(turn)]

    def speculative_call(self, code: str) -> ToolRequest | None:
        if self.tags is None:
            return None  # without tags, the blocks of a turn are ```python fences, which are text
        request = self.parse_call(code).request
        return request if isinstance(request, ToolRequest) else None

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> ObservationText:
        return self.render_reply(turn, outcomes)

    def render_reply(
        self, turn: Turn, outcomes: Sequence[Outcome] = (), user_messages: Sequence[str] = ()
    ) -> list[str | Markup]:
        """Return the text that follows a turn: the results of its calls, then user messages.

        Args:
            turn: Turn that an end token has ended.
            outcomes: Outcomes of its calls, in order; none if its calls are no longer made.
            user_messages: User messages after the results.
        """
        contents = [
            render_outcome(each, self.options.error_style, self.options.max_observation_characters) for each in outcomes
        ]
        return self.continuation(self.calls(turn) if outcomes else [], contents, user_messages)


def require_chat_format(format: Format) -> ChatFormat:
    """Return the format of a chat model, which environments and agents require.

    Raises:
        ConfigError: The format is not a chat model's.
    """
    if not isinstance(format, ChatFormat):
        raise ConfigError(f"rollout.format = {format.name!r} must be the format of a chat model")
    return format
