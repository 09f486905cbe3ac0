"""What the formats of chat models share."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torl._core import StopCondition
from torl.errors import ConfigError
from torl.formats.base import Format
from torl.formats.observation import ErrorStyle, render_outcome
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Markup, ObservationText, Outcome, ToolRequest, Turn

TRUNCATED_CALL = "CutCall"


class ChatOptions(Section):
    """Options of the formats of chat models."""

    error_style: ErrorStyle = "last_line"
    """What the model sees of an error: its last line, what was printed before it (the last line if nothing was), the
    traceback, the traceback without names of files and carets, the last line in <error> tags, or nothing."""
    max_observation_characters: PositiveInt = 1024
    """Longer results keep their head and tail, half of this each, with "..." between; of each call."""
    generation_prefix: str = ""
    """What the template puts behind the header of each message of the model, such as "<think>\\n" where it opens the
    thinking (R1, Qwen3's Thinking models)."""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call as a chat model wrote it."""

    request: ToolRequest | MalformedCall
    name: str = ""  # that the result is addressed with, where the template says one
    id: str = ""  # that the model gave the call, where the template repeats it


class ChatFormat(Format):
    """Calls inside a message, which the model's own end token ends; results as the model's template writes them.

    What was sampled stays as it is. What stands between its end token and the first token of the next message is put
    in: results, what a user says, and the next header, as the chat template of the family has them. What a tool prints
    and a user says is plain text there, also where it spells a control token. A message without calls is the last,
    where nobody has an answer to it.
    """

    tags: ClassVar[tuple[str, str] | None] = None
    """What opens and closes each call, where something closes it before the end of the turn."""
    header: ClassVar[str] = ""
    """What the template puts before each message of the model."""
    continues_after_results: ClassVar[bool] = False
    """Whether the model's message goes on behind results, and no header stands between them."""

    def __init__(self, options: ChatOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ChatOptions()
        self.every_block_is_a_call = self.tags is not None

    @property
    def message_end(self) -> str:
        """What the template puts behind a message of the model that ends without a call."""
        return self.end_tokens[0]

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """The calls of a turn, in its order: those between the tags, and the one that was not closed.

        What stands between tags in its thinking is a thought.
        """
        assert self.tags is not None, f"{type(self).__name__} has no tags: it reads the text of a turn"
        opening, closing = self.tags
        *closed, rest = self._message(turn).split(closing)
        calls = [self.parse_call(text.partition(opening)[2]) for text in closed if opening in text]
        if opening in rest:
            calls.append(ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call was not closed by {closing}")))
        return calls

    def _message(self, turn: Turn) -> str:
        """What stands behind its thinking, which ends at the first </think>, but for those in the text of a call."""
        if "</think>" not in turn.text:
            return turn.text
        calls = [block for block in turn.blocks if self.speculative_call(block.code)]
        for found in re.finditer("</think>", turn.text):
            if not any(call.start <= found.start() < call.stop for call in calls):
                return turn.text[found.end() :]
        return turn.text

    def parse_call(self, text: str) -> ChatCall:
        """The call of the text between two tags."""
        raise NotImplementedError(f"{type(self).__name__} has tags and does not read what stands between them")

    def content(self, turn: Turn) -> str:
        """What a message says to who reads it: neither its thinking nor its calls, and no blanks around it."""
        text = self._message(turn)
        return (text if self.tags is None else text.partition(self.tags[0])[0]).strip()

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """The results of calls, from behind the end token of the message that made them.

        `contents` are what the calls gave, one for each. What is no `Markup` stays text.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how results are written")

    def render_user(self, content: str) -> list[str | Markup]:
        """A message of the user, from behind what stands before it: an end token, results, another such message."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a user's messages are written")

    def continuation(
        self, calls: Sequence[ChatCall], contents: Sequence[str], said: Sequence[str] = ()
    ) -> list[str | Markup]:
        """What stands between the end token of a message and the first token of the model's next message.

        Args:
            calls: of the message.
            contents: what they gave, one for each.
            said: what a user says then, a message each.
        """
        parts = self.render_results(calls, contents) if calls else []
        for content in said:
            parts += self.render_user(content)
        if self.continues_after_results and not said:
            return parts
        return [*parts, Markup(self.header + self.options.generation_prefix)]

    def stop_condition(self) -> StopCondition:
        """The end token alone; the engine says when a call has been closed."""
        return (
            StopCondition.never() if self.tags is None else StopCondition.tagged(*(tag.encode() for tag in self.tags))
        )

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """All calls of the message."""
        return [call.request for call in self.calls(turn)]

    def supports_tool(self, tool: str) -> bool:
        """By any name without control tokens, where calls are JSON."""
        return bool(tool) and not any(token in tool for token in (*self.control_tokens, *(self.tags or ())))

    def speculative_call(self, code: str) -> ToolRequest | None:
        """A call begins when its tag closes."""
        request = self.parse_call(code).request
        return request if isinstance(request, ToolRequest) else None

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> ObservationText:
        """The results of all calls, and the header of the next message."""
        return self.render_reply(turn, outcomes)

    def render_reply(
        self, turn: Turn, outcomes: Sequence[Outcome] = (), said: Sequence[str] = ()
    ) -> list[str | Markup]:
        """What is put in after a turn that is not the last: the results of its calls, then what a user says.

        Args:
            turn: that has ended with an end token.
            outcomes: of its calls, one for each; none where the calls of the turn are not made any more.
            said: messages of the user.
        """
        shown = [
            render_outcome(each, self.options.error_style, self.options.max_observation_characters) for each in outcomes
        ]
        return self.continuation(self.calls(turn) if outcomes else [], shown, said)


def require_chat_format(format: Format) -> ChatFormat:
    """Return the format of a chat model, which environments and agents require.

    Raises:
        ConfigError: The format is not a chat model's.
    """
    if not isinstance(format, ChatFormat):
        raise ConfigError(f"rollout.format = {format.name!r} must be the format of a chat model")
    return format
