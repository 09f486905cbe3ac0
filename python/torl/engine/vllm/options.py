"""Options of the engine "vllm", and the devices of each replica."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from torl.engine.protocol import EngineOptions, EngineSetup
from torl.errors import ConfigError
from torl.options import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt


class VllmOptions(EngineOptions):
    """Options of the engine "vllm"."""

    tensor_parallel: PositiveInt = 1
    """Number of devices that share one replica's weights."""
    replicas: PositiveInt | None = None
    """Number of replicas, each with `tensor_parallel` devices. Unset uses all GPUs of the engines, or one replica on a
    CPU."""
    max_restarts: NonNegativeInt = 3
    """Maximum number of restarts of a replica before the run stops."""
    gpu_memory_utilization: PositiveFraction = 0.85
    """Fraction of a GPU's memory that the engine may use. Ignored on a CPU."""
    cpu_kv_cache_gib: PositiveInt = 1
    """Size of the KV cache on a CPU, in GiB. Ignored on a GPU."""
    cpu_threads: PositiveInt | None = None
    """Number of compute threads on a CPU. Unset uses one per core."""
    max_sequences: PositiveInt = 1024
    """Maximum number of sequences in a batch."""
    enforce_eager: bool = False
    """Disable compilation and graph capture: a faster start, but slower steps. Always on for a CPU."""
    on_weight_update: Literal["recompute", "keep", "drain"] = "recompute"
    """Handling of in-flight turns on a weight update: recompute the prefix, keep the stale KV cache (cheaper, but
    log-probabilities are inexact), or drain the turns first."""
    stall_timeout_seconds: PositiveFloat = 900.0
    """Timeout without a new token while requests are pending, after which the engine counts as hung. A warning is
    logged after a fifth of it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Other engine arguments of vLLM (fields of its `AsyncEngineArgs`), by name."""

    @property
    def engines(self) -> int:
        """Number of replicas, or one before the placement has resolved it."""
        return self.replicas or 1

    @property
    def keeps_stale_cache(self) -> bool:
        return self.on_weight_update == "keep"


@dataclass(frozen=True, slots=True)
class EngineDevices:
    """The devices of one replica."""

    on_cpu: bool
    ids: tuple[int, ...]
    """GPUs, or CPU cores. Empty for a replica that has all cores of the machine."""

    @property
    def cores(self) -> tuple[int, ...]:
        """The CPU cores that the replica's processes are bound to. Empty if they are not bound."""
        return self.ids if self.on_cpu else ()

    @classmethod
    def from_setup(cls, number: int, setup: EngineSetup, options: VllmOptions, *, on_cpu: bool) -> "EngineDevices":
        """The devices of the replica with this number.

        Raises:
            ConfigError: The setup has devices for another number of replicas, or another number of devices for each.
        """
        tensor_parallel = options.tensor_parallel
        if not setup.devices:
            gpus = range(number * tensor_parallel, (number + 1) * tensor_parallel)
            return cls(on_cpu, _share_of_cores(number, options.engines) if on_cpu else tuple(gpus))
        if len(setup.devices) != options.engines:
            raise ConfigError(
                f"engine.replicas is {options.engines}, but the placement has devices for {len(setup.devices)} engines"
            )
        devices = setup.devices[number]
        if not on_cpu and len(devices) != tensor_parallel:
            raise ConfigError(
                f"engine.tensor_parallel is {tensor_parallel}, but engine {number} has {len(devices)} GPUs"
            )
        return cls(on_cpu, devices)


def _share_of_cores(number: int, engines: int) -> tuple[int, ...]:
    if engines == 1:
        return ()
    cores: Sequence[int] = sorted(os.sched_getaffinity(0))
    if len(cores) < engines:
        return (cores[number % len(cores)],)
    return tuple(cores[number * len(cores) // engines : (number + 1) * len(cores) // engines])
