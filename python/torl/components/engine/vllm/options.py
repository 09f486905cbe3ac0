"""The options of the vLLM engine, and the memory that it takes of the devices."""

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from torl.base.options import PositiveFloat, PositiveFraction, PositiveInt
from torl.components.engine.memory import Bytes, EngineMemory
from torl.components.engine.protocol import LocalEngineOptions
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


_FEW_SEQUENCES: Final = 64


class VllmOptions(LocalEngineOptions):
    """Options of the engine "vllm"."""

    gpu_memory_utilization: PositiveFraction = 0.85
    """Fraction of a GPU's memory that the engine may use. Ignored on a CPU."""
    cpu_kv_cache_gib: PositiveFloat = 1.0
    """Size of the KV cache on a CPU, in GiB. Ignored on a GPU."""
    cpu_threads: PositiveInt | None = None
    """Number of compute threads on a CPU. Unset uses one per core."""
    on_weight_update: Literal["recompute", "keep", "drain"] = "recompute"
    """Handling of in-flight turns on a weight update: recompute the prefix, keep the stale KV cache (cheaper, but
    log-probabilities are inexact), or drain the turns first."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Other engine arguments of vLLM (fields of its `AsyncEngineArgs`), by name: { enforce_eager = true } starts faster
    and makes slower steps, as always on a CPU."""

    @property
    def engines(self) -> int:
        """Number of replicas, or one before the placement has resolved it."""
        return self.replicas or 1

    @property
    def keeps_stale_cache(self) -> bool:
        return self.on_weight_update == "keep"

    @property
    def rounds_below_dtype(self) -> bool:
        cache = self.arguments.get("kv_cache_dtype", "auto")
        return bool(self.arguments.get("quantization")) or cache not in ("auto", "bfloat16", "float32")

    @property
    def overrides_model(self) -> bool:
        return bool(self.arguments.get("hf_overrides"))

    def divides(self, shape: ModelShape, workers: int) -> bool:
        heads, kv_heads = shape.heads, shape.kv_heads
        return heads % workers == 0 and (kv_heads % workers == 0 or workers % kv_heads == 0)

    def memory(self, shape: ModelShape, gpu_bytes: int | None) -> GpuMemory | CoreMemory:
        itemsize = 2 if self.dtype == "bfloat16" else 4
        if gpu_bytes is None:
            cache = int(self.cpu_kv_cache_gib * 2**30)
            return CoreMemory(shape, itemsize, self.tensor_parallel, cache, self.max_sequences)
        return GpuMemory(shape, itemsize, self.tensor_parallel, int(gpu_bytes * self.gpu_memory_utilization))

    def savings(self, *, on_gpus: bool) -> Iterator[tuple[str, Any, str]]:
        if on_gpus:
            for fraction in (0.75, 0.6, 0.45, 0.3):
                if fraction < self.gpu_memory_utilization:
                    yield "gpu_memory_utilization", fraction, "smaller batches in the engine"
            return
        if self.max_sequences > _FEW_SEQUENCES:
            yield "max_sequences", _FEW_SEQUENCES, "smaller batches in the engine"
        if self.cpu_kv_cache_gib > 1:
            yield "cpu_kv_cache_gib", 1, "fewer sequences at a time"
        for gib in (1, 4):
            if self.cpu_kv_cache_gib < gib:
                yield "cpu_kv_cache_gib", gib, "a larger cache"
