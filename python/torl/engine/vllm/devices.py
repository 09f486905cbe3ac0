"""What one of several engines computes on."""

import os
from collections.abc import Sequence

from torl.engine.protocol import EngineSetup
from torl.engine.vllm.options import VllmOptions
from torl.errors import ConfigError


def devices_of(number: int, setup: EngineSetup, options: VllmOptions, *, on_cpu: bool) -> tuple[int, ...]:
    """The GPUs of the engine with this number, or its cores; empty for an engine that has the machine's cores alone.

    Raises:
        ConfigError: the setup names devices for another number of engines, or another number of them for each.
    """
    if not setup.devices:
        if on_cpu:
            return _share_of_cores(number, options.engines)
        return tuple(range(number * options.tensor_parallel, (number + 1) * options.tensor_parallel))
    if len(setup.devices) != options.engines:
        raise ConfigError(
            f"engine.replicas is {options.engines}, but the placement has devices for {len(setup.devices)} engines"
        )
    devices = setup.devices[number]
    if not on_cpu and len(devices) != options.tensor_parallel:
        raise ConfigError(
            f"engine.tensor_parallel is {options.tensor_parallel}, but engine {number} has {len(devices)} GPUs"
        )
    return devices


def _share_of_cores(number: int, engines: int) -> tuple[int, ...]:
    if engines == 1:
        return ()
    cores: Sequence[int] = sorted(os.sched_getaffinity(0))
    if len(cores) < engines:
        return (cores[number % len(cores)],)
    return tuple(cores[number * len(cores) // engines : (number + 1) * len(cores) // engines])
