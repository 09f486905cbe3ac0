"""Memory of an engine, as vLLM allocates it: on its GPUs, or on the cores of the machine."""

from abc import ABC
from dataclasses import dataclass

from torl.components.engine.memory import Bytes, EngineMemory
from torl.components.hub.shape import ModelShape

_ASLEEP = 2_500_000_000  # context and graphs, which a sleeping engine keeps
_PARALLEL = 500_000_000  # NCCL and the buffers of all-reduces, of tensor-parallel workers
_PROFILED = 2_000_000_000  # activations of the largest batch, which reduce the cache
_BUCKETS = 2 * (256 << 20)  # of weights in transfer, as in `torl.components.weights.channel`
_PROCESS = 1_200_000_000  # a process with vLLM that has sampled for some minutes, without a model
_BATCH_TOKENS = 4096  # of a forward pass on cores
_LOGITS_COPIES = 4  # of a batch, in the sampler


@dataclass(frozen=True, slots=True)
class _VllmMemory(EngineMemory, ABC):
    """Bytes of one tensor-parallel worker.

    Attributes:
        shape: Shape of the model.
        itemsize: Bytes of a weight, a key or a value.
        workers: Number of workers that share the weights.
    """

    shape: ModelShape
    itemsize: int
    workers: int

    @property
    def weights(self) -> int:
        return -(-self.shape.parameters // self.workers) * self.itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values on one worker, which holds at least one head, if necessary a copy."""
        heads = max(1, self.shape.kv_heads // self.workers)
        return self.shape.layers * 2 * heads * self.shape.head_size * self.itemsize

    @property
    def _transfer(self) -> int:
        """Bytes of buckets, and of the largest tensor: put together from them, or in a layer that is being loaded."""
        layer = 2 * self.shape.intermediate * self.shape.hidden
        largest = max(self.shape.embedding_parameters, layer) * self.itemsize
        return min(_BUCKETS, self.shape.parameters * self.itemsize) + largest


@dataclass(frozen=True, slots=True)
class GpuMemory(_VllmMemory):
    """Bytes of an engine on each of its GPUs.

    Attributes:
        used: Bytes that the engine uses in total.
    """

    used: int

    @property
    def share(self) -> int:
        return self.used

    @property
    def _kept(self) -> int:
        """Bytes that the engine keeps while it sleeps."""
        return _ASLEEP + _PARALLEL * (self.workers > 1)

    @property
    def cache(self) -> int:
        return self.share - self.weights - self._kept - _PROFILED

    def awake(self) -> Bytes:
        rest = self.share - self.weights - max(0, self.cache)
        return {"engine": rest, "engine weights": self.weights, "cache": max(0, self.cache)}

    def asleep(self) -> Bytes:
        return {"engine": self._kept}

    def with_weights(self) -> Bytes:
        return {"engine": self._kept, "engine weights": self.weights, "transfer": self._transfer}


@dataclass(frozen=True, slots=True)
class CoreMemory(_VllmMemory):
    """Bytes of a worker of an engine on cores, which keeps its memory while it sleeps.

    Attributes:
        cached: Bytes of the cache.
        sequences: Maximum number of sequences in a batch.
    """

    cached: int
    sequences: int

    @property
    def share(self) -> int:
        return self.cached

    @property
    def cache(self) -> int:
        return self.cached

    def awake(self) -> Bytes:
        """Return the bytes of an engine that samples. It multiplies by a packed copy of the head."""
        batch = _BATCH_TOKENS * 3 * self.shape.intermediate * self.itemsize // self.workers
        logits = _LOGITS_COPIES * self.sequences * self.shape.vocabulary * 4
        return {
            "engine": _PROCESS + batch + logits,
            "engine weights": self.weights,
            "packed head": self.shape.embedding_parameters * self.itemsize // self.workers,
            "cache": self.cache,
        }

    def asleep(self) -> Bytes:
        return self.awake()

    def with_weights(self) -> Bytes:
        return self.awake() | {"transfer": self._transfer}
