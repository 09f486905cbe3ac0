"""What a rollout needs of an inference engine: token ids in, a stream of token ids with log-probabilities out."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from torl.types import SampledTokens, SamplingParameters

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

    async def start(self) -> None:
        """Load the model and return once requests are served."""
        ...

    def generate(
        self, token_ids: Sequence[int], sampling: SamplingParameters, request_id: str, *, streamed: bool = True
    ) -> AsyncGenerator[SampledTokens, None]:
        """Sample one turn after the prefix `token_ids`.

        The pieces together are what the engine sampled, in order; the last one has a `finish_reason`. Closing
        the generator early (`aclose`, or cancelling the task that iterates) aborts the request; tokens that
        the engine ran ahead meanwhile are lost. A caller that will not close early and reads the turn only when it is
        whole says `streamed=False`: one piece costs less than many.
        """
        ...

    async def receive_weights(self, rendezvous: "Rendezvous", policy_version: int) -> None:
        """Take the weights a `WeightChannel` sends at `rendezvous`; they are version `policy_version` from then on.

        No request may be live. Forgets every cached prefix, because its keys and values are the old policy's.
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
