"""Memory of an engine, as vLLM allocates it: on its GPUs, or on the cores of the machine."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torl.run.placement.resolve import LocalEngineOptions
from torl.run.placement.shape import ModelShape
from torl.run.placement.stages import Bytes

_ASLEEP = 2_500_000_000  # context and graphs, which a sleeping engine keeps
_PARALLEL = 500_000_000  # NCCL and the buffers of all-reduces, of tensor-parallel workers
_PROFILED = 2_000_000_000  # activations of the largest batch, which reduce the cache
_BUCKETS = 2 * (256 << 20)  # of weights in transfer, as in `torl.components.weights.channel`
_PROCESS = 1_200_000_000  # a process with vLLM that has sampled for some minutes, without a model
_BATCH_TOKENS = 4096  # of a forward pass on cores
_LOGITS_COPIES = 4  # of a batch, in the sampler


@dataclass(frozen=True, slots=True)
class EngineBytes(ABC):
    """Bytes of one tensor-parallel worker of an engine.

    Attributes:
        options: Options of the engine.
        shape: Shape of the model.
    """

    options: LocalEngineOptions
    shape: ModelShape

    @property
    def _itemsize(self) -> int:
        return 2 if self.options.dtype == "bfloat16" else 4

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return -(-self.shape.parameters // self.options.tensor_parallel) * self._itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values on one worker, which holds at least one head, if necessary a copy."""
        heads = max(1, self.shape.kv_heads // self.options.tensor_parallel)
        return self.shape.layers * 2 * heads * self.shape.head_size * self._itemsize

    @property
    @abstractmethod
    def share(self) -> int:
        """Bytes that the cache is a part of, as a shortage is reported."""

    @property
    @abstractmethod
    def cache(self) -> int:
        """Bytes for keys and values. Negative if the weights do not fit."""

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the cache of one engine holds."""
        return max(0, self.cache) // self.token_bytes

    @abstractmethod
    def awake(self) -> Bytes:
        """Return the bytes of an engine that samples."""

    @abstractmethod
    def with_weights(self) -> Bytes:
        """Return the bytes of an engine that receives weights."""

    @property
    def _transfer(self) -> int:
        """Bytes of buckets, and of the largest tensor: put together from them, or in a layer that is being loaded."""
        layer = 2 * self.shape.intermediate * self.shape.hidden
        largest = max(self.shape.embedding_parameters, layer) * self._itemsize
        return min(_BUCKETS, self.shape.parameters * self._itemsize) + largest


@dataclass(frozen=True, slots=True)
class GpuEngineBytes(EngineBytes):
    """Bytes of an engine on each of its GPUs.

    Attributes:
        card: Bytes of the GPU.
    """

    card: int

    @property
    def share(self) -> int:
        """Bytes that the engine uses in total."""
        return int(self.card * self.options.gpu_memory_utilization)

    @property
    def _kept(self) -> int:
        """Bytes that the engine keeps while it sleeps."""
        return _ASLEEP + _PARALLEL * (self.options.tensor_parallel > 1)

    @property
    def cache(self) -> int:
        return self.share - self.weights - self._kept - _PROFILED

    def awake(self) -> Bytes:
        rest = self.share - self.weights - max(0, self.cache)
        return {"engine": rest, "engine weights": self.weights, "cache": max(0, self.cache)}

    def asleep(self) -> Bytes:
        """Return the bytes of an engine that sleeps."""
        return {"engine": self._kept}

    def with_weights(self) -> Bytes:
        """Return the bytes of an engine that receives weights, before it allocates its cache."""
        return {"engine": self._kept, "engine weights": self.weights, "transfer": self._transfer}


@dataclass(frozen=True, slots=True)
class CoreEngineBytes(EngineBytes):
    """Bytes of a worker of an engine on cores, which keeps its memory while it sleeps."""

    @property
    def share(self) -> int:
        """Bytes of the cache."""
        return self.cache

    @property
    def cache(self) -> int:
        return int(self.options.cpu_kv_cache_gib * 2**30)

    def awake(self) -> Bytes:
        """Return the bytes of an engine that samples. It multiplies by a packed copy of the head."""
        workers, itemsize = self.options.tensor_parallel, self._itemsize
        batch = _BATCH_TOKENS * 3 * self.shape.intermediate * itemsize // workers
        logits = _LOGITS_COPIES * self.options.max_sequences * self.shape.vocabulary * 4
        return {
            "engine": _PROCESS + batch + logits,
            "engine weights": self.weights,
            "packed head": self.shape.embedding_parameters * itemsize // workers,
            "cache": self.cache,
        }

    def with_weights(self) -> Bytes:
        return self.awake() | {"transfer": self._transfer}
