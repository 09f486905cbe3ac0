"""Which devices the learner and each engine get."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl.config import PlacementConfig
from torl.errors import ConfigError
from torl.placement.formatting import counted, format_ranges, join_or
from torl.placement.machine import Machine
from torl.placement.sides import PlacementRequest, split_devices, usable_devices

_FEW = 8  # engines whose devices are listed one by one


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
    def rank_visible_devices(self) -> tuple[str, ...] | None:
        """The GPUs of the ranks as CUDA_VISIBLE_DEVICES names them; None on cores."""
        gpus = self.machine.gpus
        return tuple(gpus[device].name for device in self.learner_devices) if gpus else None

    @property
    def rank_nodes(self) -> tuple[int, ...]:
        """The node of each rank, packed: all devices of one before the next; those of cores divide the nodes evenly."""
        machine, nodes = self.machine, len(self.machine.nodes) or 1
        if machine.gpus:
            return tuple(machine.node_of(device)[0] for device in self.learner_devices)
        return tuple(rank * nodes // self.ranks for rank in range(self.ranks))

    @property
    def ranks_of_node(self) -> int:
        """The most ranks that a node has."""
        return max(self.rank_nodes.count(node) for node in self.rank_nodes)

    @property
    def learner_cores(self) -> int:
        """What the ranks of one node share, where there are no GPUs."""
        return min(self.machine.nodes) if self.machine.nodes else len(self.learner_devices)

    @property
    def engine_nodes(self) -> tuple[int, ...]:
        """The node of each replica."""
        return tuple(self.machine.node_of(replica[0])[0] for replica in self.engine_devices)

    @property
    def engine_device_ids(self) -> tuple[tuple[int, ...], ...]:
        """What the engines are told of their devices, as their nodes count them; nothing where they share out all cores
        among themselves."""
        apart = bool(self.learner_devices) and not self.colocated
        if not self.machine.gpus and not apart:
            return ()
        return tuple(tuple(self.machine.node_of(device)[1] for device in replica) for replica in self.engine_devices)

    def __str__(self) -> str:
        engines = " + ".join(format_ranges(replica) for replica in self.engine_devices) or "none"
        if self.replicas > _FEW:
            every = sorted({device for replica in self.engine_devices for device in replica})
            engines = f"{format_ranges(every)} ({self.replicas} x {len(self.engine_devices[0])})"
        if not self.learner_devices:
            return f"engines on {self.machine.device}s {engines}"
        kind = "colocated" if self.colocated else "split"
        where = f"{kind}: learner on {self.machine.device}s {format_ranges(self.learner_devices)}, engines on {engines}"
        if not self.machine.nodes:
            return where
        ranks, engines = (format_ranges(sorted(set(nodes))) for nodes in (self.rank_nodes, self.engine_nodes))
        return f"{where}; of {len(self.machine.nodes)} nodes {ranks} have ranks, {engines} engines"


def place(config: PlacementConfig, wanted: PlacementRequest, machine: Machine) -> Placement:
    """The placement that a configuration asks for on a machine.

    Colocated, everything has all devices. Split, each side has what the configuration says it needs; where it says
    nothing of either, the engines have one half, rounded up to whole replicas, and the learner the other.

    Raises:
        ConfigError: the devices are not there, or do not divide; says what would fit.
    """
    devices = usable_devices(config, machine)
    learner, engine = split_devices(config, wanted, machine, devices)
    if not wanted.has_local_engine:
        engine = ()
    if not machine.gpus:
        return _on_cores(wanted, machine, learner, engine)
    ranks = wanted.ranks or len(learner)
    if wanted.learns and ranks > len(learner):
        raise ConfigError(
            f"learner.ranks is {ranks}, but the learner has {counted(len(learner), machine)} "
            f"({format_ranges(learner)}): leave it out for one rank on each, or set it to {len(learner)} at most"
        )
    learner = learner[:ranks] if wanted.learns else ()
    if not wanted.has_local_engine:
        return Placement(machine, ranks if wanted.learns else 0, learner, ())
    size = wanted.tensor_parallel
    replicas = wanted.replicas or len(engine) // size
    if replicas == 0 or replicas * size > len(engine):
        asked = f"{replicas} x " if wanted.replicas else ""
        fits = [number for number in range(1, len(engine) + 1) if len(engine) % number == 0]
        raise ConfigError(
            f"the engines need {asked}{size} GPUs (engine.tensor_parallel = {size}) and have "
            f"{counted(len(engine), machine)}: engine.tensor_parallel can be {join_or(fits)}"
        )
    used = engine[: replicas * size]
    _require_whole_nodes(used, size, machine)
    if wanted.learns and set(used) & set(learner) and set(used) != set(learner):
        raise ConfigError(
            f"the learner's {len(learner)} GPUs ({format_ranges(learner)}) and those of {replicas} engines with "
            f"engine.tensor_parallel = {size} ({format_ranges(used)}) overlap in part: colocated they are the same, so "
            f"learner.ranks must be {replicas * size}, or the engines take {len(learner)}"
        )
    return Placement(
        machine, ranks if wanted.learns else 0, learner, tuple(used[i : i + size] for i in range(0, len(used), size))
    )


def _on_cores(
    wanted: PlacementRequest, machine: Machine, learner: tuple[int, ...], engine: tuple[int, ...]
) -> Placement:
    """One rank and one engine unless more are asked for, on an even share of their side's cores."""
    replicas = (wanted.replicas or 1) if engine else 0
    if nodes := len(machine.nodes):
        cores = [
            tuple(core for core in range(machine.cores) if machine.node_of(core)[0] == node) for node in range(nodes)
        ]
        places = [cores[-1 - replica % nodes] for replica in range(replicas)]  # ranks begin at the first node
        return Placement(machine, (wanted.ranks or 1) if wanted.learns else 0, learner, tuple(places))
    share = max(1, len(engine) // max(1, replicas))
    places = [tuple(engine[(i * share + j) % len(engine)] for j in range(share)) for i in range(replicas)]
    return Placement(machine, (wanted.ranks or 1) if wanted.learns else 0, learner, tuple(places))


def _require_whole_nodes(used: Sequence[int], size: int, machine: Machine) -> None:
    """Raise ConfigError if the GPUs of an engine are on several nodes."""
    for first in range(0, len(used), size):
        replica = used[first : first + size]
        if len({machine.node_of(device)[0] for device in replica}) > 1:
            raise ConfigError(
                f"an engine would have the GPUs {format_ranges(replica)}, which are on several nodes of "
                f"{join_or(sorted(set(machine.nodes)))} GPUs: engine.tensor_parallel must divide the GPUs of a node, "
                "because torl starts an engine's workers in one machine"
            )
