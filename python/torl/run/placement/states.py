"""The states of a trained model on each rank, by DeepSpeed's ZeRO stage."""

from dataclasses import dataclass

BUCKET_ELEMENTS = 250_000_000
"""Number of gradients that are reduced together, in float32: 1 GB."""

FLOAT_BYTES = 4
ADAM_BYTES = 2 * FLOAT_BYTES
_COMPACTED = 2  # bytes saved by a parameter in bfloat16 instead of float32


def page_locked_bytes(size: int) -> int:
    """Return the memory of a page-locked buffer: torch's allocator rounds its size up to a power of two.

    The threshold of its option `pinned_max_round_threshold_mb` must not be used: above it torch 2.13 reuses a freed
    buffer for a larger one (`get_free_block` in ATen/core/CachingHostAllocator.h compares only the rounded sizes).
    """
    return 1 << (size - 1).bit_length() if size else 0


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of one trained model on each rank, as counted in DeepSpeed 0.19.

    The sum of parameters, master copy, gradients and Adam's state is 18 bytes a parameter in bfloat16, sharded across
    the ranks according to the stage.

    Attributes:
        parameters: Number of trained parameters.
        stage: ZeRO stage.
        itemsize: Bytes of a parameter in forward and backward.
        ranks: Number of ranks.
        frozen_parameters: Number of parameters that are not trained, with adapters.
        compact_parameters: Number of frozen float32 parameters that are stored in bfloat16
            (`torl.learner.model.lora`).
        bucket_elements: Number of gradients that are reduced together.
    """

    parameters: int
    stage: int
    itemsize: int
    ranks: int
    frozen_parameters: int = 0
    compact_parameters: int = 0
    bucket_elements: int = BUCKET_ELEMENTS

    def _divided(self, from_stage: int, parameters: int | None = None) -> int:
        count = self.parameters if parameters is None else parameters
        return -(-count // self.ranks) if self.stage >= from_stage else count

    @property
    def frozen(self) -> int:
        """Weights without an optimizer that are never offloaded: those below stage 3."""
        return 0 if self.stage == 3 else self.frozen_parameters * self.itemsize - self.compact_parameters * _COMPACTED

    @property
    def trained_weights(self) -> int:
        """Trained parameters in the precision of forward and backward."""
        return self._divided(3) * self.itemsize

    @property
    def weights(self) -> int:
        """Parameters in the precision of forward and backward. At stage 3, with the shards of frozen ones."""
        shards = self._divided(3, self.frozen_parameters) if self.stage == 3 else 0
        return self.trained_weights + shards * self.itemsize

    @property
    def master(self) -> int:
        """Float32 master copy. Without ZeRO, float32 parameters need no copy."""
        return 0 if self.stage == 0 and self.itemsize == FLOAT_BYTES else self._divided(1) * FLOAT_BYTES

    @property
    def adam(self) -> int:
        """Both moments of Adam, from the first step on."""
        return self._divided(1) * ADAM_BYTES

    @property
    def gradients(self) -> int:
        """Gradients, summed in float32 from stage 1 on. Present before an optimizer step and, at stage 3, always."""
        return self._divided(2) * FLOAT_BYTES if self.stage > 0 else self.parameters * self.itemsize

    @property
    def bucket(self) -> int:
        """Buffer in which gradients are reduced, in float32. Stage 3 never frees it."""
        return self.bucket_elements * FLOAT_BYTES if self.stage == 3 else 0

    @property
    def reduced(self) -> int:
        """Two buckets at stages 1 and 2, with two copies of one. Copies at other stages need less than the head."""
        if self.stage not in (1, 2):
            return 0
        buckets = 2 * self.bucket_elements * (FLOAT_BYTES if self.stage == 1 else self.itemsize)
        return buckets + min(self.bucket_elements, self.parameters) * (self.itemsize + FLOAT_BYTES)
