"""The base of the formats of chat models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torl._core import StopCondition
from torl.base.errors import ConfigError
from torl.base.options import PositiveInt, Section
from torl.base.types import MalformedCall, Markup, ObservationText, Outcome, ToolRequest, Turn
from torl.components.formats.chat.calls import (
    THINKING_BEGINS,
    THINKING_ENDS,
    TRUNCATED_CALL,
    ChatCall,
    ChatMessage,
    Tag,
    json_end,
    split_thinking,
)
from torl.components.formats.format import Format
from torl.components.formats.observation import ErrorStyle, render_outcome

_THINKING_TAG = re.compile("</?think>")
_NOTHING = re.compile("(?!)")


class ChatOptions(Section):
    """Options of the formats of chat models."""

    error_style: ErrorStyle = "last_line"
    max_observation_characters: PositiveInt = 1024
    """Limit on the characters of each result: a longer one keeps its head and tail, half of this each."""
    generation_prefix: str = ""
    """Text that the template puts after the header of each model message, such as "<think>\\n" if it opens the thinking
    (R1, Qwen3's Thinking models)."""


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

    A call between tags ends at the closing tag after its JSON: a tag inside a string is text. Tags inside the
    thinking are not calls.

    Attributes:
        tags: Opening and closing tag of each call, in families that close a call before the end of the turn.
        call_pattern: Text that opens a call, in families without tags. None if they read a whole message at once.
        call_head: Text between the opening and the JSON of a call.
        call_tail: Text between the JSON of a call and its closing tag.
        surrounding: Texts around all calls of a message. They are not part of the content.
        header: Text that the template puts before each message of the model.
        continues_after_results: Whether the model's message continues after results, without a header between them.
        tool_names: Pattern of the tool names that a call can be written for.
    """

    tags: ClassVar[tuple[str, str] | None] = None
    call_pattern: ClassVar[str | None] = None
    call_head: ClassVar[re.Pattern[str]] = re.compile(r"\s*")
    call_tail: ClassVar[re.Pattern[str]] = re.compile(r"\s*")
    surrounding: ClassVar[tuple[str, ...]] = ()
    header: ClassVar[str] = ""
    continues_after_results: ClassVar[bool] = False
    tool_names: ClassVar[str] = ".+"

    def __init__(self, options: ChatOptions | None = None) -> None:
        self.options = options or ChatOptions()
        self.every_block_is_a_call = self.tags is not None
        self.call_opening = None if self.tags is None else self.tags[0]
        pattern = self.call_pattern if self.tags is None else re.escape(self.tags[0])
        self._opening = _NOTHING if pattern is None else re.compile(pattern)
        self._marks = re.compile(f"{_THINKING_TAG.pattern}|{self._opening.pattern}")
        self.tools = ToolNames(self.tool_names, (*self.control_tokens, *(self.tags or ())))

    @property
    def message_end(self) -> str:
        """Text that the template puts after a message of the model without calls."""
        return self.end_tokens[0]

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """Return the calls of a turn, in order; one that cannot be made is malformed."""
        return self.read_message(turn.text).calls

    def content(self, turn: Turn) -> str:
        """Return a message without its closed thinking, its calls and surrounding whitespace."""
        return self.read_message(turn.text).text()

    def read_message(self, text: str) -> ChatMessage:
        """Return the parts of a message."""
        opened = _THINKING_TAG.findall(self.options.generation_prefix)[-1:] == [THINKING_BEGINS]
        thoughts, others, unclosed = split_thinking(text, self._thinking_tags(text, opened=opened), opened=opened)
        parts = [part for other in others for part in self._parts(other)]
        return ChatMessage([*parts, unclosed], "\n\n".join(filter(None, thoughts)) if thoughts else None)

    def _thinking_tags(self, text: str, *, opened: bool) -> list[Tag]:
        """Return the <think> and </think> outside of well-formed calls."""
        tags, position, thinks = list[Tag](), 0, opened
        if _THINKING_TAG.search(text) is None:
            return tags
        while (mark := self._marks.search(text, position)) is not None:
            if mark[0] in (THINKING_BEGINS, THINKING_ENDS):
                tags.append(Tag(mark.start(), mark[0]))
                position, thinks = mark.end(), mark[0] == THINKING_BEGINS
            else:
                _, position = self.read_call(text, mark, thinks=thinks)
        return tags

    def _parts(self, text: str) -> list[str | ChatCall]:
        """Return the calls in a text without thinking, and the texts before, between and after them."""
        parts, start, position = list[str | ChatCall](), 0, 0
        while (opening := self._opening.search(text, position)) is not None:
            call, position = self.read_call(text, opening)
            if call is None:
                call, position = self.read_malformed_call(text, opening)
            if call is not None:
                parts += [text[start : opening.start()], replace(call, text=text[opening.start() : position])]
                start = position
        parts.append(text[start:])
        return [self._without_surrounding(part) if isinstance(part, str) and start else part for part in parts]

    def _without_surrounding(self, text: str) -> str:
        for each in self.surrounding:
            text = text.replace(each, "")
        return text

    def read_call(self, text: str, opening: re.Match[str], *, thinks: bool = False) -> tuple[ChatCall | None, int]:
        """Return the well-formed call that begins at an opening, and where it ends.

        Without one, return None and where the search for the next opening continues. `thinks` says whether the text is
        thinking that is open there.
        """
        start, closing = opening.end(), "" if self.tags is None else self.tags[1]
        stop, is_json = self._json_of_call(text, start)
        if is_json:
            tail = self.call_tail.match(text, stop)
            stop = -1 if tail is None or not text.startswith(closing, tail.end()) else tail.end()
        else:  # a format whose calls are not JSON
            other = self._opening.search(text, start)
            stop = text.find(closing, start, other.start() if other else len(text)) if closing else -1
        call = None if stop < 0 else self.parse_call(text[start:stop])
        return (None, start) if call is None or call.is_malformed else (call, stop + len(closing))

    def read_malformed_call(self, text: str, opening: re.Match[str]) -> tuple[ChatCall | None, int]:
        """Return the malformed call that begins at an opening, and where it ends.

        If there is none, return None and where the search for the next opening continues.
        """
        start = opening.end()
        stop, is_json = self._json_of_call(text, start)
        stop = stop if is_json else start
        if self.tags is None:
            other = self._opening.search(text, stop)
            end = other.start() if other else len(text)
            return self.parse_call(text[start:end]), end
        end = text.find(self.tags[1], stop)
        if end < 0:
            return ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call was not closed by {self.tags[1]}")), len(text)
        return self.parse_call(text[start:end]), end + len(self.tags[1])

    def _json_of_call(self, text: str, start: int) -> tuple[int, bool]:
        """Return where the JSON of the call ends whose opening ends at `start`, and whether there is a complete one."""
        head = self.call_head.match(text, start)
        return (start, False) if head is None else json_end(text, head.end())

    def parse_call(self, text: str) -> ChatCall:
        """Return the call of the text after its opening, without the closing tag."""
        raise NotImplementedError(f"{type(self).__name__} has calls and no parse_call")

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
    """Return a format of a chat model, which environments and agents require; raise `ConfigError` for another."""
    if not isinstance(format, ChatFormat):
        raise ConfigError(f"rollout.format = {format.name!r} must be the format of a chat model")
    return format
