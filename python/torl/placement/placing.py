"""Which devices the learner and each engine get."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl.config import PlacementConfig
from torl.errors import ConfigError
from torl.placement.machine import Machine


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a configuration says of the numbers of parts; None leaves it to the devices."""

    ranks: int | None = None
    replicas: int | None = None
    tensor_parallel: int = 1
    learns: bool = True
    """False for a command that only samples: then all devices are the engines'."""
    asynchronous: bool = False
    """Whether the engines sample while the learner trains (`rollout.max_staleness` above 0)."""
    samples_here: bool = True
    """False for an engine that is elsewhere and has no devices of this machine, such as one behind a server."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a run, by their numbers among those of its machine: GPUs, or cores where there are none."""

    machine: Machine
    ranks: int
    """Learner processes. Each has one GPU; they share the cores evenly."""
    learner_devices: tuple[int, ...]
    """Empty where nothing is learned."""
    engine_devices: tuple[tuple[int, ...], ...]
    """Those of each replica, one for each of its tensor-parallel workers; cores may serve several replicas."""

    @property
    def colocated(self) -> bool:
        """Whether learner and engines share the devices, and take turns."""
        return any(not set(self.learner_devices).isdisjoint(replica) for replica in self.engine_devices)

    @property
    def replicas(self) -> int:
        """Engines side by side."""
        return len(self.engine_devices)

    @property
    def rank_names(self) -> tuple[str, ...] | None:
        """The GPUs of the ranks as CUDA_VISIBLE_DEVICES names them; None on cores."""
        return self._names(self.learner_devices) if self.machine.gpus else None

    @property
    def replica_names(self) -> tuple[tuple[str, ...], ...] | None:
        """The GPUs of each replica as CUDA_VISIBLE_DEVICES names them; None on cores."""
        return tuple(self._names(replica) for replica in self.engine_devices) if self.machine.gpus else None

    @property
    def given_to_engines(self) -> tuple[tuple[int, ...], ...]:
        """What the engines are told of their devices; nothing where they share out all cores among themselves."""
        apart = bool(self.learner_devices) and not self.colocated
        return self.engine_devices if self.machine.gpus or apart else ()

    def _names(self, devices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.machine.gpus[device].name for device in devices)

    def __str__(self) -> str:
        engines = " + ".join(_numbers(replica) for replica in self.engine_devices) or "none"
        if not self.learner_devices:
            return f"engines on {self.machine.device}s {engines}"
        kind = "colocated" if self.colocated else "split"
        return f"{kind}: learner on {self.machine.device}s {_numbers(self.learner_devices)}, engines on {engines}"


def place(config: PlacementConfig, wanted: Wanted, machine: Machine) -> Placement:
    """The placement that a configuration asks for on a machine.

    Colocated, everything has all devices. Split, each side has what the configuration says it needs; where it says
    nothing of either, the engines have one half, rounded up to whole replicas, and the learner the other.

    Raises:
        ConfigError: the devices are not there, or do not divide; says what would fit.
    """
    devices = _taken(config, machine)
    learner, engine = _sides(config, wanted, machine, devices)
    if not wanted.samples_here:
        engine = ()
    if not machine.gpus:
        return _on_cores(wanted, machine, learner, engine)
    ranks = wanted.ranks or len(learner)
    if wanted.learns and ranks > len(learner):
        raise ConfigError(
            f"learner.ranks is {ranks}, but the learner has {_counted(len(learner), machine)} "
            f"({_numbers(learner)}): leave it out for one rank on each, or set it to {len(learner)} at most"
        )
    learner = learner[:ranks] if wanted.learns else ()
    if not wanted.samples_here:
        return Placement(machine, ranks if wanted.learns else 0, learner, ())
    size = wanted.tensor_parallel
    replicas = wanted.replicas or len(engine) // size
    if replicas == 0 or replicas * size > len(engine):
        asked = f"{replicas} x " if wanted.replicas else ""
        fits = [number for number in range(1, len(engine) + 1) if len(engine) % number == 0]
        raise ConfigError(
            f"the engines need {asked}{size} GPUs (engine.tensor_parallel = {size}) and have "
            f"{_counted(len(engine), machine)}: engine.tensor_parallel can be {_listed(fits)}"
        )
    used = engine[: replicas * size]
    if wanted.learns and set(used) & set(learner) and set(used) != set(learner):
        raise ConfigError(
            f"the learner's {len(learner)} GPUs ({_numbers(learner)}) and those of {replicas} engines with "
            f"engine.tensor_parallel = {size} ({_numbers(used)}) overlap in part: colocated they are the same, so "
            f"learner.ranks must be {replicas * size}, or the engines take {len(learner)}"
        )
    return Placement(
        machine, ranks if wanted.learns else 0, learner, tuple(used[i : i + size] for i in range(0, len(used), size))
    )


def _taken(config: PlacementConfig, machine: Machine) -> tuple[int, ...]:
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
            f"[placement] names the {machine.device}s {_numbers(missing)}, and there are "
            f"{_counted(machine.devices, machine)}, counted from 0"
        )
    if outside := sorted({*(config.learner or ()), *(config.engine or ())} - set(chosen)):
        raise ConfigError(f"placement.learner and placement.engine name {_numbers(outside)}, not in placement.gpus")
    return chosen


def _sides(
    config: PlacementConfig, wanted: Wanted, machine: Machine, devices: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The devices of the learner and of the engines."""
    if not wanted.learns:
        return (), config.engine or devices
    if not wanted.samples_here:
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


def _halves(wanted: Wanted, machine: Machine, devices: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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
            f"({max(engine, size)}) need more than {_counted(len(devices), machine)}; set learner.ranks or "
            "engine.tensor_parallel lower, or rollout.max_staleness to 0"
        )
    return devices[:learner], devices[-engine:]


def _others(given: Sequence[int], devices: tuple[int, ...], wanted: Wanted) -> tuple[int, ...]:
    """What is left for the other side: the same devices, or the rest where both work at once."""
    if not wanted.asynchronous:
        return tuple(given)
    rest = tuple(device for device in devices if device not in set(given))
    if not rest:
        raise ConfigError("[placement] leaves no device for the other side, and rollout.max_staleness needs some")
    return rest


def _on_cores(wanted: Wanted, machine: Machine, learner: tuple[int, ...], engine: tuple[int, ...]) -> Placement:
    """One rank and one engine unless more are asked for, on an even share of their side's cores."""
    replicas = (wanted.replicas or 1) if engine else 0
    share = max(1, len(engine) // max(1, replicas))
    places = [tuple(engine[(i * share + j) % len(engine)] for j in range(share)) for i in range(replicas)]
    return Placement(machine, (wanted.ranks or 1) if wanted.learns else 0, learner, tuple(places))


def _counted(count: int, machine: Machine) -> str:
    return f"{count} {machine.device}{'' if count == 1 else 's'}"


def _listed(numbers: Sequence[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def _numbers(devices: Sequence[int]) -> str:
    """Like "0-3,6"."""
    parts: list[str] = []
    for device in sorted(devices):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == device - 1:
            parts[-1] = f"{first}-{device}"
        else:
            parts.append(str(device))
    return ",".join(parts)
