"""A rank's end of the way to the engines: its channel, which is kept from one transfer to the next."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torl.config import LearnerConfig
from torl.learner.messages import ChannelRequest
from torl.weights.channel import WeightChannel
from torl.weights.rendezvous import Endpoint, Rendezvous, TransferSummary, choose_transport

if TYPE_CHECKING:
    import torch


class WeightPublisher:
    """Sends one rank's weights to the engine workers that are paired with it."""

    def __init__(
        self,
        weights: "Callable[[], Iterable[tuple[str, torch.Tensor]]]",
        settings: LearnerConfig,
        *,
        rank: int,
        world_size: int,
        cuda: bool,
    ) -> None:
        """Open nothing yet.

        Args:
            weights: gives all tensors by their names in a checkpoint; every rank must take all of them.
            settings: the way, and how long to wait.
            rank: of this process.
            world_size: how many ranks send.
            cuda: whether the weights are on GPUs.
        """
        self._weights = weights
        self._settings = settings
        self._rank = rank
        self._world_size = world_size
        self._cuda = cuda
        self._channel: WeightChannel | None = None

    def open(self, where: ChannelRequest) -> Rendezvous | None:
        """Rank 0 listens on a free port and says where; a channel that is open and fits stays as it is."""
        if self._rank != 0:
            return None
        transport = choose_transport(
            self._settings.weight_transfer,
            senders=self._world_size,
            receivers=where.receivers,
            cuda=self._cuda,
            colocated=where.colocated,
            one_machine=where.one_machine,
        )
        # On one GPU with its receiver, and within a machine, a rank sends to those of its own number.
        nodes = where.nodes if transport in ("gloo", "nccl") and not where.one_machine else ()
        wanted = Rendezvous(where.host, 0, where.receivers, self._world_size, transport, nodes=nodes)
        if where.fresh or not (self._channel and self._channel.matches(wanted)):
            self.close()
            self._channel = self._made(wanted)
        assert self._channel is not None
        return self._channel.rendezvous

    def send(self, rendezvous: Rendezvous, checksum: bool) -> TransferSummary | None:
        """Send the weights to this rank's receivers; a rank without any helps to gather them."""
        if not rendezvous.receivers_of(self._rank):
            for _ in self._weights():
                pass
            return None
        if self._channel is None or self._channel.rendezvous != rendezvous:
            self.close()
            self._channel = self._made(rendezvous)
        return self._channel.send(self._weights(), checksum=checksum)

    def close(self) -> None:
        """Close the channel, which the receivers notice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _made(self, meeting: Rendezvous) -> WeightChannel:
        end = Endpoint("sender", self._rank)
        return WeightChannel(meeting, end, timeout_seconds=self._settings.timeout_seconds)
