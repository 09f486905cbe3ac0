"""Assign devices to the learner and to each engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl.base.errors import ConfigError
from torl.run.config import PlacementConfig
from torl.run.placement.machine import Machine, format_ranges, join_or
from torl.run.placement.sides import PlacementRequest, split_devices, usable_devices

_MAX_LISTED = 8  # engines whose devices are listed separately


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a run, by their numbers on its machine: GPUs, or cores if there are no GPUs.

    Attributes:
        machine: Machine, or all nodes of a cluster.
        ranks: Number of learner processes. Each has one GPU; on cores, they share the cores evenly.
        learner_devices: Devices of the learner. Empty if the command does not train.
        engine_devices: Devices of each engine, one per tensor-parallel worker. Engines may share cores.
    """

    machine: Machine
    ranks: int
    learner_devices: tuple[int, ...]
    engine_devices: tuple[tuple[int, ...], ...]

    @property
    def colocated(self) -> bool:
        """Whether learner and engines share devices and use them in turn."""
        return any(not set(self.learner_devices).isdisjoint(replica) for replica in self.engine_devices)

    @property
    def replicas(self) -> int:
        """Number of engines."""
        return len(self.engine_devices)

    @property
    def rank_visible_devices(self) -> tuple[str, ...] | None:
        """CUDA_VISIBLE_DEVICES of each rank; None on cores."""
        gpus = self.machine.gpus
        return tuple(gpus[device].name for device in self.learner_devices) if gpus else None

    @property
    def rank_nodes(self) -> tuple[int, ...]:
        """Node of each rank. Ranks fill one node before the next; on cores, they are spread evenly."""
        machine, nodes = self.machine, len(self.machine.nodes) or 1
        if machine.gpus:
            return tuple(machine.node_of(device)[0] for device in self.learner_devices)
        return tuple(rank * nodes // self.ranks for rank in range(self.ranks))

    @property
    def ranks_of_node(self) -> int:
        """Maximum number of ranks on one node."""
        return max(self.rank_nodes.count(node) for node in self.rank_nodes)

    @property
    def learner_cores(self) -> int:
        """Number of cores that the ranks of one node share, without GPUs."""
        return min(self.machine.nodes) if self.machine.nodes else len(self.learner_devices)

    @property
    def engine_nodes(self) -> tuple[int, ...]:
        """Node of each engine."""
        return tuple(self.machine.node_of(replica[0])[0] for replica in self.engine_devices)

    @property
    def engine_device_ids(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each engine, as numbered on its node. Empty if the engines divide all cores themselves."""
        separate = bool(self.learner_devices) and not self.colocated
        if not self.machine.gpus and not separate:
            return ()
        return tuple(tuple(self.machine.node_of(device)[1] for device in replica) for replica in self.engine_devices)

    def __str__(self) -> str:
        engines = " + ".join(format_ranges(replica) for replica in self.engine_devices) or "none"
        if self.replicas > _MAX_LISTED:
            devices = sorted({device for replica in self.engine_devices for device in replica})
            engines = f"{format_ranges(devices)} ({self.replicas} x {len(self.engine_devices[0])})"
        if not self.learner_devices:
            return f"engines on {self.machine.device}s {engines}"
        if not self.engine_devices:
            return f"learner on {self.machine.device}s {format_ranges(self.learner_devices)}"
        kind = "colocated" if self.colocated else "split"
        text = f"{kind}: learner on {self.machine.device}s {format_ranges(self.learner_devices)}, engines on {engines}"
        if not self.machine.nodes:
            return text
        ranks, engines = (format_ranges(sorted(set(nodes))) for nodes in (self.rank_nodes, self.engine_nodes))
        return f"{text}; of {len(self.machine.nodes)} nodes {ranks} have ranks, {engines} engines"


def place(config: PlacementConfig, request: PlacementRequest, machine: Machine) -> Placement:
    """Place a run on a machine.

    Colocated sides both get all devices. Split sides get the devices that the configuration names or requires. If it
    does neither, the engines get one half of the devices, rounded up to whole replicas, and the learner the other half.

    Raises:
        ConfigError: The devices do not exist, or cannot be divided as requested; the message suggests values that fit.
    """
    devices = usable_devices(config, machine)
    learner, engine = split_devices(config, request, machine, devices)
    if not request.has_local_engine:
        engine = ()
    if not machine.gpus:
        return _place_on_cores(request, machine, learner, engine)
    ranks = request.ranks or len(learner)
    if request.learns and ranks > len(learner):
        raise ConfigError(
            f"learner.ranks is {ranks}, but the learner has {machine.count_devices(len(learner))} "
            f"({format_ranges(learner)}): leave it out for one rank on each, or set it to {len(learner)} at most"
        )
    learner = learner[:ranks] if request.learns else ()
    if not request.has_local_engine:
        return Placement(machine, ranks if request.learns else 0, learner, ())
    size = request.tensor_parallel
    replicas = request.replicas or len(engine) // size
    if replicas == 0 or replicas * size > len(engine):
        multiple = f"{replicas} x " if request.replicas else ""
        sizes = [number for number in range(1, len(engine) + 1) if len(engine) % number == 0]
        raise ConfigError(
            f"the engines need {multiple}{size} GPUs (engine.tensor_parallel = {size}) and have "
            f"{machine.count_devices(len(engine))}: engine.tensor_parallel can be {join_or(sizes)}"
        )
    used = engine[: replicas * size]
    _require_whole_nodes(used, size, machine)
    if request.learns and set(used) & set(learner) and set(used) != set(learner):
        raise ConfigError(
            f"the learner's {len(learner)} GPUs ({format_ranges(learner)}) and those of {replicas} engines with "
            f"engine.tensor_parallel = {size} ({format_ranges(used)}) overlap in part: colocated they are the same, so "
            f"learner.ranks must be {replicas * size}, or the engines take {len(learner)}"
        )
    if set(used) == set(learner):
        learner = used  # rank i and worker i have the same GPU, also if the two were named in different orders
    return Placement(
        machine, ranks if request.learns else 0, learner, tuple(used[i : i + size] for i in range(0, len(used), size))
    )


def _place_on_cores(
    request: PlacementRequest, machine: Machine, learner: tuple[int, ...], engine: tuple[int, ...]
) -> Placement:
    """Place one rank and one engine, or the requested numbers, on even shares of their side's cores."""
    ranks = (request.ranks or 1) if request.learns else 0
    replicas = (request.replicas or 1) if engine else 0
    if nodes := len(machine.nodes):
        cores = [
            tuple(core for core in range(machine.cores) if machine.node_of(core)[0] == node) for node in range(nodes)
        ]
        # Engines start at the last node, because ranks start at the first.
        return Placement(machine, ranks, learner, tuple(cores[-1 - replica % nodes] for replica in range(replicas)))
    share = max(1, len(engine) // max(1, replicas))
    engines = [tuple(engine[(i * share + j) % len(engine)] for j in range(share)) for i in range(replicas)]
    return Placement(machine, ranks, learner, tuple(engines))


def _require_whole_nodes(used: Sequence[int], size: int, machine: Machine) -> None:
    """Raise ConfigError if the GPUs of an engine are on several nodes."""
    for first in range(0, len(used), size):
        replica = used[first : first + size]
        if len({machine.node_of(device)[0] for device in replica}) > 1:
            raise ConfigError(
                f"an engine would have the GPUs {format_ranges(replica)}, which are on several nodes of "
                f"{join_or(sorted(set(machine.nodes)))} GPUs: engine.tensor_parallel must divide the GPUs of a node, "
                "because torl starts all workers of an engine on one machine"
            )
