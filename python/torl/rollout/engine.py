"""What a rollout needs of an inference engine: a prefix in, a turn of token ids with log-probabilities out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from torl.rollout.turns import TurnEnd
from torl.types import SampledTurn, SamplingParameters

if TYPE_CHECKING:
    from torl.weight_transfer import Rendezvous


class Engine(Protocol):
    """An inference engine that holds one version of the policy at a time.

    Every method raises `EngineError` when the engine is dead, was never started or refuses what is asked of it; the
    message carries the end of the engine's log.
    """

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample now: 0 for those the engine was started with."""
        ...

    @property
    def idle_seconds(self) -> float:
        """How long it has held no request since it was started."""
        ...

    async def start(self) -> None:
        """Load the model and return once requests are served."""
        ...

    async def sample(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        *,
        end: TurnEnd | None,
        episode: int = 0,
        on_block: Callable[[str], None] | None = None,
    ) -> SampledTurn:
        """Sample one turn after the prefix `token_ids`, up to `end`.

        `on_block(code)` is called when a code block closes and the turn goes on; it is a hint, which may come late
        or never. `episode` numbers the episode that the turn belongs to: those with lower numbers are served first
        where not all can be, and all turns of one are sampled where its prefix is cached. Cancelling the call aborts
        the request.
        """
        ...

    async def receive_weights(self, rendezvous: "Rendezvous", policy_version: int) -> None:
        """Take the weights a `WeightChannel` sends at `rendezvous`; they are version `policy_version` from then on.

        Turns that are being sampled go on with the new weights, and say which of their tokens are whose; none begins
        meanwhile. Cached keys and values are the old policy's: they are forgotten, unless the engine was told to keep
        them (`EngineConfig.live_turns`).
        """
        ...

    async def sleep(self) -> None:
        """Give the device's memory to someone else until `wake`. Nothing happens on a CPU."""
        ...

    async def wake(self) -> None:
        """Take the device's memory back; the weights are those from before `sleep`."""
        ...

    def check(self) -> None:
        """Raise if the engine is dead."""
        ...

    async def watch(self) -> NoReturn:
        """Wait until the engine dies, then raise. Cancel it when it is no longer of interest."""
        ...

    async def close(self) -> None:
        """End every process of the engine. Safe to call twice, and on an engine that never started or is dead."""
        ...
