"""The options of the vLLM engine, and what they take of the devices."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import Field

from torl.base.options import PositiveFloat, PositiveFraction, PositiveInt
from torl.components.engine.protocol import LocalEngineOptions
from torl.components.engine.vllm.memory import CoreMemory, GpuMemory
from torl.components.hub.shape import ModelShape

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
