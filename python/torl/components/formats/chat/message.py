"""The parts of a message of a chat model: thinking, calls, and the other text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torl.components.formats.chat.calls import ChatCall

THINKING_BEGINS, THINKING_ENDS = "<think>", "</think>"


class Tag(NamedTuple):
    """A <think> or </think>, and its place in a text."""

    start: int
    text: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """The content of a message of a model.

    Attributes:
        parts: The text outside the thinking, and the calls, in order.
        thinking: The closed thinking, without its tags; None if there is none. Thinking that is not closed is text
            without calls.
    """

    parts: Sequence[str | ChatCall]
    thinking: str | None = None

    @property
    def calls(self) -> list[ChatCall]:
        """The calls, in order."""
        return [part for part in self.parts if isinstance(part, ChatCall)]

    def text(self, shows: Callable[[ChatCall], bool] = lambda _: False) -> str:
        """Return the text without surrounding whitespace, with the text of the calls that `shows` selects."""
        texts = (part if isinstance(part, str) else part.text if shows(part) else "" for part in self.parts)
        return "".join(texts).strip()


def split_thinking(text: str, tags: Sequence[Tag], *, opened: bool) -> tuple[list[str], list[str], str]:
    """Return the thinking of a message, its other text, and the text of thinking that is not closed.

    The message begins with thinking if the template has opened it or its first tag is </think>.
    """
    thoughts, others, start = list[str](), list[str](), 0
    thinks = opened or (bool(tags) and tags[0].text == THINKING_ENDS)
    for tag in tags:
        if thinks and tag.text == THINKING_ENDS:
            thoughts.append(text[start : tag.start].removeprefix(THINKING_BEGINS).strip())
            thinks, start = False, tag.start + len(THINKING_ENDS)
        elif not thinks and tag.text == THINKING_BEGINS:
            others.append(text[start : tag.start])
            thinks, start = True, tag.start
    return (thoughts, others, text[start:]) if thinks else (thoughts, [*others, text[start:]], "")
