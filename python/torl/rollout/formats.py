"""How a model asks for a run and how it is answered: the part of an episode that differs between papers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torl.config import RolloutConfig
from torl.rollout.observation import ErrorObservation, observe
from torl.types import Outcome, OutcomeStatus

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


class Format(Protocol):
    """The protocol between model and interpreter that an episode follows."""

    def marker(self, calls: int) -> bytes | None:
        """What ends a turn after `calls` tool calls; None where nothing does any more."""
        ...

    def choose(self, blocks: Sequence[str]) -> str | None:
        """Which of the code blocks that the turn closed is run; None if there is nothing to run."""
        ...

    def answer(self, outcome: Outcome, overshoot: bytes) -> str:
        """The text to put in. `overshoot` is what the marker's last token held beyond the marker."""
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

    @classmethod
    def from_config(cls, config: RolloutConfig, max_tool_calls: int | None = None) -> "ToRLFormat":
        """The format of a run; an evaluation may have its own number of calls."""
        calls = config.max_tool_calls if max_tool_calls is None else max_tool_calls
        return cls(calls, config.error_observation, config.max_observation_characters)

    def marker(self, calls: int) -> bytes | None:
        """See `Format.marker`."""
        return b"```output" if calls < self.max_tool_calls else None

    def choose(self, blocks: Sequence[str]) -> str | None:
        """The last one."""
        return blocks[-1] if blocks else None

    def answer(self, outcome: Outcome, overshoot: bytes) -> str:
        r"""See `Format.answer`. What the model has sampled of it already ("```output\n") is not repeated."""
        text = f"\n{observe(outcome, self.errors, self.max_observation_characters)}\n```\n"
        rest = text.encode()
        if rest.startswith(overshoot):
            try:
                return rest[len(overshoot) :].decode()
            except UnicodeDecodeError:  # the token ended inside a character
                return text
        return text
