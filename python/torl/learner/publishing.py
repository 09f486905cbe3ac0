"""Whole weights of a policy: gathered from all ranks, and sent to receivers.

A channel is kept from one transfer to the next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torl.components.weights.channel import WeightChannel
from torl.components.weights.rendezvous import (
    Endpoint,
    GpuUse,
    Rendezvous,
    TransferEnds,
    TransferSummary,
    choose_transport,
)
from torl.learner.checkpoint.shards import MODEL_PREFIX
from torl.learner.messages import OpenChannel
from torl.learner.model.loading import saved_buffers
from torl.learner.model.lora import MergedWeight, adapter_weights, merged_weights
from torl.run.config import LearnerConfig

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
        self._end = Endpoint("sender", rank)
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
        rendezvous = Rendezvous(
            request.host,
            0,
            receivers.count,
            self._world_size,
            transport,
            nodes=nodes,
            timeout_seconds=self._settings.timeout_seconds,
        )
        if receivers.changed or not (self._channel and self._channel.matches(rendezvous)):
            self.close()
            self._channel = WeightChannel(rendezvous, self._end)
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
            self._channel = WeightChannel(rendezvous, self._end)
        return self._channel.send(self._weights(), checksum=checksum)

    def close(self) -> None:
        """Close the channel, if any. The receivers notice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


_MAX_GATHERED_BYTES = 64 << 20  # size of the weights that are gathered together from the shards of all ranks


def full_weights(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor of the model's files with its name there. Every rank must exhaust the iterator.

    Under ZeRO-3 a few weights are gathered when the first of them is requested, and released after the last: no rank
    has the complete model. Tied weights are yielded once, under the first of their names, as in a saved model. Adapters
    are merged. Saved buffers, such as the biases of some routers, follow the weights; every rank has them complete.
    """
    from deepspeed import zero

    sharded = engine.zero_optimization_stage() == 3
    in_files = _file_tensors(engine.module.causal_lm)
    for group in _gathered_together(merged_weights(engine.module)):
        parameters = [parameter for weight in group for parameter in weight.parameters]
        with zero.GatheredParameters(parameters, enabled=sharded):
            for weight in group:
                yield from in_files(weight.name.removeprefix(MODEL_PREFIX), weight.value())
    for name, buffer in saved_buffers(engine.module).items():
        yield from in_files(name.removeprefix(MODEL_PREFIX), buffer)


def _file_tensors(causal_lm: Any) -> Callable[[str, Tensor], Iterable[tuple[str, Tensor]]]:
    """Return a function that converts a weight of a Hugging Face model to named tensors of its files.

    transformers fuses the experts of a layer and renames some weights. Files have one tensor for each expert, and
    loaders of vLLM know the names in files only.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange, revert_weight_conversion

    conversions = get_model_conversion_mapping(causal_lm, add_legacy=False)
    conversions = [conversion for conversion in conversions if not isinstance(conversion, PrefixChange)]
    if not conversions:
        return lambda name, tensor: [(name, tensor)]
    causal_lm._weight_conversions = conversions  # otherwise transformers collects them again for each tensor
    return lambda name, tensor: revert_weight_conversion(causal_lm, {name: tensor}).items()


def full_adapters(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield each adapter weight with its name in the model. Every rank must exhaust the iterator."""
    from deepspeed import zero

    sharded = engine.zero_optimization_stage() == 3
    for name, parameter in adapter_weights(engine.module):
        with zero.GatheredParameters([parameter], enabled=sharded):
            yield name.removeprefix(MODEL_PREFIX), parameter.detach()


def _gathered_together(weights: Sequence[MergedWeight]) -> Iterator[list[MergedWeight]]:
    """Yield groups of consecutive weights, of at most `_MAX_GATHERED_BYTES` or a single weight.

    Each group is gathered in one round trip.
    """
    group: list[MergedWeight] = []
    size = 0
    for weight in weights:
        sizes = (getattr(part, "ds_numel", part.numel()) * part.element_size() for part in weight.parameters)
        weight_size = sum(sizes)
        if group and size + weight_size > _MAX_GATHERED_BYTES:
            yield group
            group, size = [], 0
        group.append(weight)
        size += weight_size
    if group:
        yield group
