"""A model's weights out of a DeepSpeed engine, whole and under the names of its files, a few at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from torl.learner.checkpoint.names import MODEL_PREFIX
from torl.learner.model.lora import MergedWeight, adapter_weights, merged_weights

MAX_GATHERED_BYTES = 64 << 20  # of weights that are whole at a time when shards are sent or exported


def full_weights(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """(name as in the model's own files, whole tensor) for each parameter; every rank must take all of them.

    Under ZeRO-3 a few parameters are gathered when their turn comes and released when the next are asked for: no rank
    ever holds the whole model. A weight that is tied to another comes once, under the first of its names, as in a saved
    model. Adapters are merged.
    """
    from deepspeed import zero

    sharded = engine.zero_optimization_stage() == 3
    for group in _gathered_together(merged_weights(engine.module)):
        parameters = [parameter for weight in group for parameter in weight.parameters]
        with zero.GatheredParameters(parameters, enabled=sharded):
            for weight in group:
                yield weight.name.removeprefix(MODEL_PREFIX), weight.value()


def full_adapters(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """The same for the adapters alone, by their names in the model; none without `model.lora`."""
    from deepspeed import zero

    sharded = engine.zero_optimization_stage() == 3
    for name, parameter in adapter_weights(engine.module):
        with zero.GatheredParameters([parameter], enabled=sharded):
            yield name.removeprefix(MODEL_PREFIX), parameter.detach()


def _gathered_together(weights: Sequence[MergedWeight]) -> Iterator[list[MergedWeight]]:
    """Runs of weights of `MAX_GATHERED_BYTES` at most, or of one: to gather each by itself costs a round trip."""
    group: list[MergedWeight] = []
    size = 0
    for weight in weights:
        sizes = (getattr(part, "ds_numel", part.numel()) * part.element_size() for part in weight.parameters)
        own = sum(sizes)
        if group and size + own > MAX_GATHERED_BYTES:
            yield group
            group, size = [], 0
        group.append(weight)
        size += own
    if group:
        yield group
