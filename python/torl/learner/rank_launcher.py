"""Start and watch learner ranks on the nodes of a cluster: the part on a node, and the controller's handles of it."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from torl.base.errors import ActorDiedError, LearnerDiedError, LearnerError
from torl.base.runtime.cluster import ActorHandle, Cluster
from torl.base.runtime.cluster.logs import LogFolder, gather_logs
from torl.base.runtime.processes.children import describe_exit, log_tail, start_module
from torl.base.runtime.processes.hangs import dump_stacks
from torl.base.runtime.processes.supervision import task_group
from torl.learner.rank_connection import KEY_VARIABLE, ControllerAddress

_POLL_SECONDS = 0.2
_CALL_TIMEOUT_SECONDS = 20.0  # of a launcher that dumps stacks or kills its ranks


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank to start."""

    rank: int
    local_rank: int
    local_world_size: int
    world_size: int
    devices: tuple[str, ...] | None
    """The GPUs of all ranks on its node, as in CUDA_VISIBLE_DEVICES. None leaves all GPUs visible."""
    log: Path
    """File on the controller's machine that the rank's output is added to."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables that torch.distributed and DeepSpeed read."""
        environment = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        return environment


def spawn_worker(
    rank: int,
    world_size: int,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: IO[bytes],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `torl.learner.worker`, which is killed when the calling thread ends.

    Args:
        rank: Rank of the worker.
        world_size: Number of ranks.
        arguments: Command-line arguments that specify the connection to the controller.
        environment: Environment variables in addition to those of this process.
        output: File for standard output and error.
        pass_fds: File descriptors that the worker inherits.
    """
    return start_module(
        "torl.learner.worker",
        *("--rank", str(rank), "--world-size", str(world_size), *arguments),
        # A rank imports the same modules as this process, such as custom estimators and losses.
        environment={"PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=pass_fds,
    )


class RankLauncher:
    """Starts the ranks of a node, on that node. They are killed when its process ends."""

    def __init__(self) -> None:
        self._folder = LogFolder()
        self.logs = self._folder.tail
        self._started: dict[RankSpec, subprocess.Popen[bytes]] = {}

    async def start(self, spec: RankSpec, controller: ControllerAddress, environment: Mapping[str, str]) -> None:
        """Start a rank."""
        arguments = ("--controller", f"{controller.host}:{controller.port}")
        variables = {
            **environment,
            **spec.environment(),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the controller owns the store at which the ranks meet
            KEY_VARIABLE: controller.key,
        }
        with self._log(spec).open("ab") as output:
            # In the thread of the event loop: a thread of asyncio would end, and the rank with it.
            self._started[spec] = spawn_worker(spec.rank, spec.world_size, arguments, variables, output)

    async def watch(self) -> NoReturn:
        """Wait until a rank exits, and raise LearnerDiedError with the end of its log."""
        while True:
            for spec, process in self._started.items():
                if (status := process.poll()) is not None:
                    end = f"end of {spec.log}:\n{log_tail(self._log(spec))}"
                    raise LearnerDiedError(f"learner rank {spec.rank} {describe_exit(status)}; {end}")
            await asyncio.sleep(_POLL_SECONDS)

    async def dump_stacks(self) -> None:
        """Make the ranks write their stacks to their logs."""
        running = {self._log(spec): [process.pid] for spec, process in self._started.items() if process.poll() is None}
        await asyncio.to_thread(dump_stacks, running)

    async def close(self) -> None:
        """Kill the ranks that are still running."""
        for process in self._started.values():
            process.kill()
            await asyncio.to_thread(process.wait)
        self._folder.close()

    def _log(self, spec: RankSpec) -> Path:
        return self._folder.path / spec.log.name


@dataclass(frozen=True, slots=True)
class _Node:
    launcher: ActorHandle
    log_gathering: asyncio.Task[None]


class RankLaunchers:
    """The controller's handles of the launchers on all nodes with ranks, and the store at which the ranks meet."""

    def __init__(self, host: str) -> None:
        """Listen for the ranks on a free port of `host`, an address of the controller.

        Raises:
            LearnerError: The controller cannot listen on `host`.
        """
        self._store = _store(host)
        self.init_method = f"tcp://{host}:{self._store.port}"
        """Init method of torch.distributed for the ranks."""
        self._nodes: dict[int, _Node] = {}
        self._loss_watches: list[asyncio.Task[None]] = []

    async def start(self, cluster: Cluster, nodes: Iterable[int], logs: Path) -> None:
        """Start a launcher on each of `nodes`. The output of their ranks is added to files in `logs`.

        Raises:
            ActorDiedError: A node was lost.
        """
        async with task_group() as starts:
            for node in set(nodes):
                starts.create_task(self._start_on(cluster, node, logs))

    async def _start_on(self, cluster: Cluster, node: int, logs: Path) -> None:
        launcher = await cluster.start_actor(node, RankLauncher, name="the launcher of the learner's ranks")
        self._nodes[node] = _Node(launcher, asyncio.create_task(gather_logs(launcher, logs)))

    def launcher(self, node: int) -> ActorHandle:
        """Return the launcher of a node."""
        return self._nodes[node].launcher

    @property
    def launchers(self) -> list[ActorHandle]:
        """The launchers of all nodes."""
        return [node.launcher for node in self._nodes.values()]

    def on_node_loss(self, node: int, callback: Callable[[], object]) -> None:
        """Call `callback` when the node is lost, which closes no connection."""
        self._loss_watches.append(asyncio.create_task(_watch_node(self.launcher(node), callback)))

    async def dump_stacks(self) -> None:
        """Make all ranks write their stacks to their logs. Nodes that do not respond are skipped."""
        await asyncio.gather(*(_try_call(launcher, "dump_stacks") for launcher in self.launchers))

    async def close(self) -> None:
        """End the launchers and the ranks. Safe to call twice."""
        watches, self._loss_watches = self._loss_watches, []
        for task in watches:
            task.cancel()
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*watches, *map(_close_node, nodes), return_exceptions=True)


async def _close_node(node: _Node) -> None:
    try:
        await _try_call(node.launcher, "close")
        await asyncio.wait([node.log_gathering], timeout=_CALL_TIMEOUT_SECONDS)  # for the rest of the logs
    finally:
        node.log_gathering.cancel()
        await node.launcher.kill()


async def _try_call(launcher: ActorHandle, method: str) -> None:
    with contextlib.suppress(ActorDiedError, TimeoutError):
        async with asyncio.timeout(_CALL_TIMEOUT_SECONDS):
            await launcher.call(method)


async def _watch_node(launcher: ActorHandle, callback: Callable[[], object]) -> None:
    try:
        await launcher.watch()
    except ActorDiedError:
        callback()


def _store(host: str) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(host, 0, None, True, wait_for_workers=False)
    except RuntimeError as error:
        raise LearnerError(f"the controller could not listen on {host}: {error}") from error
