"""The nodes of a cluster that learner ranks are on, as the controller sees them: an agent on each."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.errors import ActorDiedError, LearnerError
from torl.learner.rank_launcher import RankLauncher
from torl.runtime.cluster import ActorHandle, Cluster
from torl.runtime.cluster.logs import gather_logs
from torl.runtime.processes.supervision import first_error

_ANSWER_SECONDS = 20.0  # of an agent that writes stacks, or ends its ranks


@dataclass(frozen=True, slots=True)
class _Node:
    agent: ActorHandle
    gathering: asyncio.Task[None]  # the logs


class RankLaunchers:
    """The agents of all nodes that have ranks, and the store at which the ranks meet."""

    def __init__(self, host: str) -> None:
        """Listen for the ranks on a free port of `host`, the controller's.

        Raises:
            LearnerError: that cannot be.
        """
        self._store = _store(host)
        self.meeting = f"tcp://{host}:{self._store.port}"
        """As an init method of torch.distributed."""
        self._nodes: dict[int, _Node] = {}
        self._noticing: list[asyncio.Task[None]] = []

    async def start(self, cluster: Cluster, nodes: Iterable[int], logs: Path) -> None:
        """Start an agent on each of `nodes`; what their ranks print is added to files in `logs`.

        Raises:
            ActorDiedError: a node was lost meanwhile.
        """
        try:
            async with asyncio.TaskGroup() as starts:
                for node in set(nodes):
                    starts.create_task(self._place(cluster, node, logs))
        except ExceptionGroup as errors:
            raise first_error(errors) from errors

    async def _place(self, cluster: Cluster, node: int, logs: Path) -> None:
        agent = await cluster.start_actor(node, RankLauncher, name="the agent of the learner's ranks")
        self._nodes[node] = _Node(agent, asyncio.create_task(gather_logs(agent, logs)))

    def agent(self, node: int) -> ActorHandle:
        """The agent of a node."""
        return self._nodes[node].agent

    @property
    def agents(self) -> list[ActorHandle]:
        """Those of all nodes."""
        return [node.agent for node in self._nodes.values()]

    def on_node_loss(self, node: int, then: Callable[[], object]) -> None:
        """Call `then` when the node is lost: that closes no connection."""
        self._noticing.append(asyncio.create_task(_notice(self.agent(node), then)))

    async def write_stacks(self) -> None:
        """Have all ranks write what they are doing to their logs; a node that gives no answer is left out."""
        await asyncio.gather(*(_asked(agent, "write_stacks") for agent in self.agents))

    async def close(self) -> None:
        """End the agents and the ranks. Safe to call twice."""
        noticing, self._noticing = self._noticing, []
        for task in noticing:
            task.cancel()
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*noticing, *map(_end, nodes), return_exceptions=True)


async def _end(node: _Node) -> None:
    try:
        await _asked(node.agent, "close")
        await asyncio.wait([node.gathering], timeout=_ANSWER_SECONDS)  # the last of the logs
    finally:
        node.gathering.cancel()
        await node.agent.kill()


async def _asked(agent: ActorHandle, method: str) -> None:
    with contextlib.suppress(ActorDiedError, TimeoutError):
        async with asyncio.timeout(_ANSWER_SECONDS):
            await agent.call(method)


async def _notice(agent: ActorHandle, then: Callable[[], object]) -> None:
    try:
        await agent.watch()
    except ActorDiedError:
        then()


def _store(host: str) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(host, 0, None, True, wait_for_workers=False)
    except RuntimeError as error:
        raise LearnerError(f"the controller could not listen on {host}: {error}") from error
