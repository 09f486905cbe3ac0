"""Requests to tools, their outcomes, and the text that is inserted for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torl_sandbox.outcome import OutcomeStatus

ARGUMENT_KEYS = ("arguments", "parameters")
"""Keys of the arguments of a call written as JSON: Hermes' and Llama's. A call has one of them in any format."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a tool call.

    Attributes:
        status: Status of the call.
        text: Output of the tool: printed text, search results, or a line that describes an error.
        error: Type of the error, such as "ZeroDivisionError".
        details: Further results of the tool, as plain JSON. A "traceback" may be shown to the model.
    """

    status: OutcomeStatus
    text: str
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status is OutcomeStatus.OK


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call that the model requests.

    Attributes:
        tool: Name of the tool in the run.
        arguments: Arguments of the call, as plain JSON.
    """

    tool: str
    arguments: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """A tool call that cannot be executed. The model receives an error message instead.

    Attributes:
        error: Type of the error, such as "NoCode".
        message: Description of the error.
    """

    error: str
    message: str

    @property
    def outcome(self) -> Outcome:
        """Outcome shown to the model. It counts as a failed call."""
        return Outcome(OutcomeStatus.ERROR, f"{self.error}: {self.message}", error=self.error)


@dataclass(frozen=True, slots=True)
class Markup:
    """Markup of a chat template. Added tokens of the vocabulary in its text are encoded as such.

    Attributes:
        text: Text of the markup.
    """

    text: str


ObservationText: TypeAlias = str | Sequence[str | Markup]
"""Text inserted after a turn, in one or several parts. Parts other than `Markup` never become added tokens."""
