"""The numbers of an episode."""

from dataclasses import dataclass

from torl.config import RolloutConfig


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """The numbers of an episode that are neither the format's nor a tool's."""

    max_response_tokens: int  # sampled and observed together
    max_tool_calls: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0  # of the run
    end_at_void_turn: bool = False
    speculative_execution: bool = True
    stop: tuple[str, ...] = ()  # strings that end a response
    max_failed_fraction: float = 0.1  # of the episodes that are played together
    max_turns: int | None = None  # that the model may take

    @classmethod
    def from_config(cls, config: RolloutConfig, seed: int) -> "EpisodeSettings":
        """The settings of a run."""
        return cls(
            max_response_tokens=config.max_response_tokens,
            max_tool_calls=config.max_tool_calls,
            temperature=config.temperature,
            top_p=config.top_p,
            seed=seed,
            end_at_void_turn=config.end_at_void_turn,
            speculative_execution=config.speculative_execution,
            stop=config.stop,
            max_failed_fraction=config.max_failed_fraction,
            max_turns=config.max_turns,
        )
