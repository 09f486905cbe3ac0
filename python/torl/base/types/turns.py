"""Requests to the engine for one turn, and the turns that it samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from torl._core import StopCondition


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
