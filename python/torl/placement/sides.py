"""Which of a machine's devices a run takes, and how they are divided between the learner and the engines."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl.config import PlacementConfig
from torl.errors import ConfigError
from torl.placement.formatting import counted, format_ranges
from torl.placement.machine import Machine


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a configuration says of the numbers of parts; None leaves it to the devices."""

    ranks: int | None = None
    replicas: int | None = None
    tensor_parallel: int = 1
    learns: bool = True
    """False for a command that only samples: then all devices are the engines'."""
    asynchronous: bool = False
    """Whether the engines sample while the learner trains (`rollout.max_staleness` above 0)."""
    has_local_engine: bool = True
    """False for an engine that is elsewhere and has no devices of this machine, such as one behind a server."""


def usable_devices(config: PlacementConfig, machine: Machine) -> tuple[int, ...]:
    """The devices that the run may use."""
    there = range(machine.devices)
    if config.gpus != "all" and not machine.gpus:
        raise ConfigError(
            "placement.gpus asks for GPUs, and none is visible here: leave it out to compute on the cores, or see "
            "what nvidia-smi and CUDA_VISIBLE_DEVICES say"
        )
    if config.gpus == "all":
        named = set(config.learner or ()) | set(config.engine or ())
        chosen = tuple(there)
    else:
        chosen = tuple(range(config.gpus)) if isinstance(config.gpus, int) else config.gpus
        named = {*chosen, *(config.learner or ()), *(config.engine or ())}
    if missing := sorted(named - set(there)):
        raise ConfigError(
            f"[placement] names the {machine.device}s {format_ranges(missing)}, and there are "
            f"{counted(machine.devices, machine)}, counted from 0"
        )
    if outside := sorted({*(config.learner or ()), *(config.engine or ())} - set(chosen)):
        raise ConfigError(
            f"placement.learner and placement.engine name {format_ranges(outside)}, not in placement.gpus"
        )
    return chosen


def split_devices(
    config: PlacementConfig, wanted: PlacementRequest, machine: Machine, devices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The devices of the learner and of the engines."""
    if not wanted.learns:
        return (), config.engine or devices
    if not wanted.has_local_engine:
        return config.learner or devices, ()
    if config.learner is not None or config.engine is not None:
        learner = config.learner or _others(config.engine or (), devices, wanted)
        engine = config.engine or _others(learner, devices, wanted)
        if wanted.asynchronous and machine.gpus and set(learner) == set(engine):
            raise ConfigError("rollout.max_staleness needs placement.learner and placement.engine to differ")
        return learner, engine
    if not wanted.asynchronous:
        return (devices[: wanted.ranks] if wanted.ranks and machine.gpus else devices,) * 2
    return _halves(wanted, machine, devices)


def _halves(
    wanted: PlacementRequest, machine: Machine, devices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first devices for the learner and the last for the engines, which work at once."""
    if not machine.gpus:
        middle = len(devices) - len(devices) // 2
        return devices[:middle], devices[middle:] or devices  # one core serves both, only slower
    size = wanted.tensor_parallel
    engine = wanted.replicas * size if wanted.replicas else -(-(len(devices) // 2) // size) * size
    if wanted.ranks and not wanted.replicas:
        engine = (len(devices) - wanted.ranks) // size * size
    learner = wanted.ranks or len(devices) - engine
    if engine < size or learner < 1 or engine + learner > len(devices):
        raise ConfigError(
            f"rollout.max_staleness needs GPUs of its own for the engine: learner ({max(learner, 1)}) and engines "
            f"({max(engine, size)}) need more than {counted(len(devices), machine)}; set learner.ranks or "
            "engine.tensor_parallel lower, or rollout.max_staleness to 0"
        )
    return devices[:learner], devices[-engine:]


def _others(given: Sequence[int], devices: tuple[int, ...], wanted: PlacementRequest) -> tuple[int, ...]:
    """What is left for the other side: the same devices, or the rest where both work at once."""
    if not wanted.asynchronous:
        return tuple(given)
    rest = tuple(device for device in devices if device not in set(given))
    if not rest:
        raise ConfigError("[placement] leaves no device for the other side, and rollout.max_staleness needs some")
    return rest
