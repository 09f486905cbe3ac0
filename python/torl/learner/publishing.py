"""The sending side of weight transfers in a rank, with a channel that is kept from one transfer to the next."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torl.config import LearnerConfig
from torl.learner.messages import OpenChannel
from torl.weights.channel import WeightChannel
from torl.weights.rendezvous import Endpoint, GpuUse, Rendezvous, TransferEnds, TransferSummary, choose_transport

if TYPE_CHECKING:
    import torch


class WeightPublisher:
    """Sends a rank's weights to the engine workers that are paired with it."""

    def __init__(
        self,
        weights: "Callable[[], Iterable[tuple[str, torch.Tensor]]]",
        settings: LearnerConfig,
        *,
        rank: int,
        world_size: int,
        cuda: bool,
    ) -> None:
        """Create a publisher without a channel.

        Args:
            weights: Function that yields all tensors by their names in a checkpoint. Every rank must exhaust it.
            settings: Settings of the learner: the transport and the timeout.
            rank: Rank of this process.
            world_size: Number of ranks.
            cuda: Whether the weights are on GPUs.
        """
        self._weights = weights
        self._settings = settings
        self._rank = rank
        self._world_size = world_size
        self._cuda = cuda
        self._channel: WeightChannel | None = None

    def open(self, request: OpenChannel) -> Rendezvous | None:
        """Listen on a free port at rank 0 and return its rendezvous. A channel that is open and fits is reused."""
        if self._rank != 0:
            return None
        receivers = request.receivers
        gpus: GpuUse = "none" if not self._cuda else "shared" if receivers.share_gpus else "separate"
        ends = TransferEnds(self._world_size, receivers.count, gpus, request.machines)
        transport = choose_transport(self._settings.weight_transfer, ends)
        # Without a network, the nodes of the receivers do not matter: rank i sends to worker i.
        nodes = receivers.nodes if transport in ("gloo", "nccl") and request.machines > 1 else ()
        rendezvous = Rendezvous(request.host, 0, receivers.count, self._world_size, transport, nodes=nodes)
        if receivers.changed or not (self._channel and self._channel.matches(rendezvous)):
            self.close()
            self._channel = self._create_channel(rendezvous)
        assert self._channel is not None
        return self._channel.rendezvous

    def send(self, rendezvous: Rendezvous, checksum: bool) -> TransferSummary | None:
        """Send the weights to this rank's receivers. A rank without receivers only takes part in gathering."""
        if not rendezvous.receivers_of(self._rank):
            for _ in self._weights():
                pass
            return None
        if self._channel is None or self._channel.rendezvous != rendezvous:
            self.close()
            self._channel = self._create_channel(rendezvous)
        return self._channel.send(self._weights(), checksum=checksum)

    def close(self) -> None:
        """Close the channel, if any. The receivers notice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _create_channel(self, rendezvous: Rendezvous) -> WeightChannel:
        end = Endpoint("sender", self._rank)
        return WeightChannel(rendezvous, end, timeout_seconds=self._settings.timeout_seconds)
