"""The devices that a run uses, divided between the learner and the engines."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl.base.errors import ConfigError
from torl.run.config import PlacementConfig
from torl.run.placement.machine import Machine, format_ranges


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The numbers of learner ranks and engines that a configuration requests. None leaves a number to the devices.

    Attributes:
        ranks: Number of learner ranks.
        replicas: Number of engines.
        tensor_parallel: Number of devices of each engine.
        learns: Whether the command trains. If not, the engines get all devices.
        asynchronous: Whether the engines sample while the learner trains (`rollout.max_staleness` above 0).
        has_local_engine: Whether the engine uses devices of this machine; false for a remote server.
    """

    ranks: int | None = None
    replicas: int | None = None
    tensor_parallel: int = 1
    learns: bool = True
    asynchronous: bool = False
    has_local_engine: bool = True


def usable_devices(config: PlacementConfig, machine: Machine) -> tuple[int, ...]:
    """Return the devices that the run may use.

    Raises:
        ConfigError: `config` names devices that the machine does not have.
    """
    available = range(machine.devices)
    if config.gpus != "all" and not machine.gpus:
        raise ConfigError(
            f"placement.gpus = {config.gpus!r}, but no GPU is visible: remove it to compute on the cores, or check "
            "nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    if config.gpus == "all":
        named = set(config.learner or ()) | set(config.engine or ())
        chosen = tuple(available)
    else:
        chosen = tuple(range(config.gpus)) if isinstance(config.gpus, int) else config.gpus
        named = {*chosen, *(config.learner or ()), *(config.engine or ())}
    if missing := sorted(named - set(available)):
        raise ConfigError(
            f"[placement] names the {machine.device}s {format_ranges(missing)}, and there are "
            f"{machine.count_devices(machine.devices)}, counted from 0"
        )
    if outside := sorted({*(config.learner or ()), *(config.engine or ())} - set(chosen)):
        raise ConfigError(
            f"placement.learner and placement.engine name {format_ranges(outside)}, not in placement.gpus"
        )
    return chosen


def split_devices(
    config: PlacementConfig, request: PlacementRequest, machine: Machine, devices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the devices of the learner and the devices of the engines.

    Raises:
        ConfigError: The devices are too few for both sides.
    """
    if not request.learns:
        return (), config.engine or devices
    if not request.has_local_engine:
        return config.learner or devices, ()
    if config.learner is not None or config.engine is not None:
        learner = config.learner or _other_side(config.engine or (), devices, request)
        engine = config.engine or _other_side(learner, devices, request)
        if request.asynchronous and machine.gpus and set(learner) == set(engine):
            raise ConfigError("rollout.max_staleness needs placement.learner and placement.engine to differ")
        return learner, engine
    if not request.asynchronous:
        return (devices[: request.ranks] if request.ranks and machine.gpus else devices,) * 2
    return _halves(request, machine, devices)


def _halves(
    request: PlacementRequest, machine: Machine, devices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first devices for the learner and the last for the engines, which work at the same time."""
    if not machine.gpus:
        middle = len(devices) - len(devices) // 2
        return devices[:middle], devices[middle:] or devices  # both sides can share a single core
    size = request.tensor_parallel
    engine = request.replicas * size if request.replicas else -(-(len(devices) // 2) // size) * size
    if request.ranks and not request.replicas:
        engine = (len(devices) - request.ranks) // size * size
    learner = request.ranks or len(devices) - engine
    if engine < size or learner < 1 or engine + learner > len(devices):
        raise ConfigError(
            f"rollout.max_staleness needs separate GPUs for the engine: learner ({max(learner, 1)}) and engines "
            f"({max(engine, size)}) need more than {machine.count_devices(len(devices))}; set learner.ranks or "
            "engine.tensor_parallel lower, or rollout.max_staleness to 0"
        )
    return devices[:learner], devices[-engine:]


def _other_side(named: Sequence[int], devices: tuple[int, ...], request: PlacementRequest) -> tuple[int, ...]:
    """Return the devices of the unnamed side: the same ones, or the remaining ones if both work at the same time."""
    if not request.asynchronous:
        return tuple(named)
    remaining = tuple(device for device in devices if device not in set(named))
    if not remaining:
        raise ConfigError("[placement] leaves no device for the other side, and rollout.max_staleness needs some")
    return remaining
