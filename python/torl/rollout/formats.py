"""How a model asks for a run and how it is answered: the part of an episode that differs between papers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from torl.config import RolloutConfig
from torl.rollout.observation import ErrorObservation, observe
from torl.rollout.turns import TurnEnd
from torl.types import FormatName, Outcome, OutcomeStatus

NO_CODE = Outcome(
    status=OutcomeStatus.ERROR,
    stdout="",
    stderr="",
    exception_type="NoCode",
    exception_line="NoCode: there was no complete ```python block to run",
    traceback=None,
    cpu_seconds=0.0,
    wall_seconds=0.0,
    peak_memory_bytes=0,
)
"""The outcome of a call without code. Nothing ran; it counts as a call, and as one that failed."""


TOO_LONG = "The output of the code execution is too long, please check your code."
"""What ZeroTIR shows instead of a long result."""


class Format(Protocol):
    """The protocol between model and interpreter that an episode follows."""

    @property
    def name(self) -> FormatName:
        """Its name in the configuration and in records."""
        ...

    def turn_end(self, calls: int, at_line_start: bool) -> TurnEnd | None:
        """What ends a turn after `calls` tool calls; None where nothing does any more.

        `at_line_start`: whether the text before the turn ends with a newline, or there is none.
        """
        ...

    def choose(self, blocks: Sequence[str]) -> str | None:
        """Which of the code blocks that the turn closed is run; None if there is nothing to run."""
        ...

    def answer(self, outcome: Outcome, overshoot: bytes) -> str:
        """The text to put in. `overshoot` is what the token that ended the turn held beyond that end."""
        ...

    def limited(self, max_tool_calls: int) -> Self:
        """The same format with another number of calls, for evaluation."""
        ...


@dataclass(frozen=True, slots=True)
class ToRLFormat:
    r"""ToRL (section 3.1): after "```output" the last closed block of the turn runs, "\n{observation}\n```\n" goes in.

    After `max_tool_calls` calls the marker is plain text. A marker in a turn without a closed block is answered
    with an error and counts as a call, so that an endless row of markers ends.
    """

    max_tool_calls: int = 1
    errors: ErrorObservation = "last_line"
    max_observation_characters: int = 256

    @property
    def name(self) -> FormatName:
        """See `Format.name`."""
        return "torl"

    def turn_end(self, calls: int, at_line_start: bool) -> TurnEnd | None:
        """See `Format.turn_end`."""
        return TurnEnd(b"```output", at_line_start) if calls < self.max_tool_calls else None

    def choose(self, blocks: Sequence[str]) -> str | None:
        """The last one."""
        return blocks[-1] if blocks else None

    def answer(self, outcome: Outcome, overshoot: bytes) -> str:
        r"""See `Format.answer`. What the model has sampled of it already ("```output\n") is not repeated."""
        return _without(overshoot, f"\n{observe(outcome, self.errors, self.max_observation_characters)}\n```\n")

    def limited(self, max_tool_calls: int) -> Self:
        """See `Format.limited`."""
        return replace(self, max_tool_calls=max_tool_calls)


@dataclass(frozen=True, slots=True)
class ZeroTIRFormat:
    r"""ZeroTIR (section 3.2): a block runs when its fence closes, "\n```output\n{result}\n```\n\n\n" goes in.

    After `max_tool_calls` calls (the paper's N interactions) fences are plain text. There is no marker: an output block
    that the model opens itself is text. An observation of more than `max_observation_tokens`, fences included, is
    replaced by a sentence that says so.
    """

    count_tokens: Callable[[str], int]
    max_tool_calls: int = 2
    errors: ErrorObservation = "traceback"
    max_observation_tokens: int = 256

    @property
    def name(self) -> FormatName:
        """See `Format.name`."""
        return "zerotir"

    def turn_end(self, calls: int, at_line_start: bool) -> TurnEnd | None:
        """See `Format.turn_end`."""
        return TurnEnd(None, at_line_start) if calls < self.max_tool_calls else None

    def choose(self, blocks: Sequence[str]) -> str | None:
        """The one that ended the turn."""
        return blocks[-1] if blocks else None

    def answer(self, outcome: Outcome, overshoot: bytes) -> str:
        """See `Format.answer`. The newline that the closing fence's token may hold already is not repeated."""
        text = self._frame(observe(outcome, self.errors, max_characters=None))
        if self.count_tokens(text) > self.max_observation_tokens:
            text = self._frame(TOO_LONG)
        return _without(overshoot, text)

    def limited(self, max_tool_calls: int) -> Self:
        """See `Format.limited`."""
        return replace(self, max_tool_calls=max_tool_calls)

    @staticmethod
    def _frame(result: str) -> str:
        return f"\n```output\n{result}\n```\n\n\n"


def make_format(config: RolloutConfig, count_tokens: Callable[[str], int]) -> Format:
    """The format of that name; `count_tokens` says how many tokens of the model a text has."""
    if config.format == "zerotir":
        return ZeroTIRFormat(
            count_tokens, config.max_tool_calls, config.error_observation, config.max_observation_tokens
        )
    return ToRLFormat(config.max_tool_calls, config.error_observation, config.max_observation_characters)


def _without(overshoot: bytes, text: str) -> str:
    """`text` less what was sampled of it already; all of it if something else was, or half a character."""
    rest = text.encode()
    if rest.startswith(overshoot):
        try:
            return rest[len(overshoot) :].decode()
        except UnicodeDecodeError:  # the token ended inside a character
            return text
    return text
