"""The options of the engine "vllm"."""

from typing import Any, Literal

from pydantic import Field

from torl.engine.protocol import EngineOptions
from torl.options import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt


class VllmOptions(EngineOptions):
    """Options of the engine "vllm"."""

    tensor_parallel: PositiveInt = 1
    """Devices that share one engine's weights."""
    replicas: PositiveInt | None = None
    """Engines side by side, each with `tensor_parallel` devices of its own; as many as have room on the GPUs of the
    engines when unset, and one on a CPU."""
    max_restarts: NonNegativeInt = 3
    """How often each of them is started again when it has died, before the run is given up."""
    gpu_memory_utilization: PositiveFraction = 0.85
    """Share of a GPU's memory the engine may use. Not used on a CPU."""
    cpu_kv_cache_gib: PositiveInt = 1
    """Size of the KV cache on a CPU, in GiB. Not used on a GPU."""
    cpu_threads: PositiveInt | None = None
    """Compute threads of the engine on a CPU; when unset, one for each of its cores."""
    max_sequences: PositiveInt = 1024
    """Sequences the engine batches at once."""
    enforce_eager: bool = False
    """Do not compile or capture graphs: slower steps, a faster start. Always so on a CPU."""
    on_weight_update: Literal["recompute", "keep", "drain"] = "recompute"
    """What becomes of turns being sampled when weights arrive: they continue after their prefix was computed anew, they
    continue with the old policy's keys and values (cheaper; logprobs are no longer exact), or they end first."""
    stall_timeout_seconds: PositiveFloat = 900.0
    """Longest time in which no token comes although requests are open, before the engine is given up; a fifth of it
    brings a warning."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Any other of vLLM's engine arguments (fields of its `AsyncEngineArgs`), by name."""

    @property
    def engines(self) -> int:
        """Engines side by side; one where the devices have not settled it."""
        return self.replicas or 1

    @property
    def keeps_stale_cache(self) -> bool:
        """Whether live turns continue with the old policy's keys and values."""
        return self.on_weight_update == "keep"
