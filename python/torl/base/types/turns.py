"""Turns: requests to the engine, what it samples, the calls of tools in it, their outcomes and the text for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from torl._core import StopCondition
from torl_sandbox.errors import OutcomeStatus

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


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Sampling settings of one turn.

    Attributes:
        max_tokens: Maximum number of sampled tokens.
        temperature: Sampling temperature. 0 samples greedily.
        top_p: Probability mass of nucleus sampling.
        seed: Random seed of the turn.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request for one turn, sampled after a prefix.

    Attributes:
        id: Unique among the pending requests of an engine.
        prefix: All tokens before the turn, prompt included.
        sampling: Sampling settings.
        stop_condition: End of the turn, in addition to end-of-sequence tokens and `sampling.max_tokens`.
        at_line_start: Whether the text of `prefix` is empty or ends with a newline.
        episode: Number of the episode. Lower numbers take precedence; the turns of an episode share a prefix cache.
        group: Name that the episodes of one prompt share. Engines may compute their common prefix once.
        replica: Number of the engine that samples the turn, below `Engine.replica_count`. If it cannot, another does.
            Unset chooses the engine of the episode.
        start_version: Policy version at the start of the episode, or None for the current one. The turn must not read
            keys and values that older policies computed.
    """

    id: str
    prefix: Sequence[int]
    sampling: SamplingParameters
    stop_condition: StopCondition = field(default_factory=StopCondition.never)
    at_line_start: bool = True
    episode: int = 0
    group: str = ""
    replica: int | None = None
    start_version: int | None = None


class TurnFinish(StrEnum):
    """The reason why an engine ended a turn.

    Attributes:
        STOP: The model sampled an end-of-sequence token, the last of the turn.
        LENGTH: The turn reached `SamplingParameters.max_tokens`.
        END: The turn met its `TurnRequest.stop_condition`. Some tokens may follow the end.
    """

    STOP = "stop"
    LENGTH = "length"
    END = "end"


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn as an engine sampled it, token for token.

    Attributes:
        token_ids: Sampled tokens.
        logprobs: Log-probabilities of the tokens according to the engine, after temperature. For a greedy turn, at
            temperature 1.
        policy_versions: Pairs of a policy version and the index of its first token, in order. There is more than one
            pair if the weights changed in flight.
        finish_reason: Reason why the turn ended.
        cached_tokens: Number of prefix tokens that the engine found in its prefix cache.
        replica: Number of the engine's replica that sampled it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[tuple[int, int], ...]
    finish_reason: TurnFinish
    cached_tokens: int
    replica: int = field(default=0, compare=False)
