"""The nodes of a Ray cluster: check the head's address, choose nodes, reserve them."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from torl.base.errors import ClusterError
from torl.base.runtime.cluster.protocol import ClusterConfig

_CONNECT_SECONDS = 10.0
_STARTUP_TIMEOUT_SECONDS = 300.0  # for the nodes to join and become free
_POLL_SECONDS = 1.0
START_RAY_HINT = (
    "start one with `ray start --head`, set RAY_AUTH_MODE=token if it requires a token, or set RAY_ADDRESS=local"
)


def ray_address() -> str:
    """Return RAY_ADDRESS; "auto", which leaves the search for a cluster to Ray, if it is not set."""
    return os.environ.get("RAY_ADDRESS", "auto")


async def require_listener(address: str) -> None:
    """Raise ClusterError if no process listens at an address.

    Ray itself searches for over a minute, and then ends the process.
    """
    if address in ("auto", "local"):
        return
    try:
        parsed = urlsplit(address if "://" in address else f"//{address}")
        host, port = parsed.hostname, parsed.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise ClusterError(f"RAY_ADDRESS = {address!r} is neither 'auto' nor 'local' nor HOST:PORT of a Ray head")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await asyncio.open_connection(host, port)
    except TimeoutError:
        raise ClusterError(
            f"RAY_ADDRESS = {address!r} did not respond within {_CONNECT_SECONDS:g} seconds; {START_RAY_HINT}"
        ) from None
    except OSError as error:
        raise ClusterError(
            f"nothing listens at RAY_ADDRESS = {address!r} ({error.strerror or error}); {START_RAY_HINT}"
        ) from error
    connection.close()


async def reserve_nodes(config: ClusterConfig) -> tuple[Any, list[dict[str, float]]]:
    """Reserve a placement group with a bundle for each node of the run; returns the group and the bundles.

    Wait for nodes that have not joined or that other runs hold. Nodes that Ray reports as dead are left out.

    Raises:
        ClusterError: The nodes were not available within the timeout.
    """
    import ray

    reason = ""
    try:
        async with asyncio.timeout(_STARTUP_TIMEOUT_SECONDS):
            while True:
                try:
                    bundles = bundles_for(ray.nodes(), config.nodes)
                except ClusterError as error:
                    reason = str(error)
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                reason = f"{len(bundles)} nodes with {bundles[0]} are not free: `ray status` lists their users"
                if (group := await _reserve(bundles, config)) is not None:
                    return group, bundles
    except TimeoutError:
        raise ClusterError(f"{reason} (torl waited {_STARTUP_TIMEOUT_SECONDS:g} s)") from None


def nodes_of(group: Any) -> list[str]:
    """Return Ray's names of the nodes that currently hold a placement group, by the numbers of its bundles."""
    import ray

    nodes: Mapping[int, str] = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [nodes[number] for number in sorted(nodes)]


async def _reserve(bundles: list[dict[str, float]], config: ClusterConfig) -> Any:
    """Wait for a placement group and return it; None if the available nodes have changed."""
    import ray

    group = ray.util.placement_group(bundles, strategy="STRICT_SPREAD")
    ready = asyncio.ensure_future(_awaited(group.ready()))
    reserved = False
    try:
        while not ready.done() and bundles_for(ray.nodes(), config.nodes) == bundles:
            await asyncio.wait([ready], timeout=_POLL_SECONDS)
        reserved = ready.done()
    except ClusterError:
        pass  # a node was lost
    finally:
        ready.cancel()
        if not reserved:
            ray.util.remove_placement_group(group)
    return group if reserved else None


def bundles_for(nodes: Sequence[Mapping[str, Any]], count: int | None) -> list[dict[str, float]]:
    """Return the resources to reserve: all cores and GPUs of each node that the run takes.

    Args:
        nodes: Nodes as Ray lists them.
        count: Number of nodes to take. None takes all nodes with the maximum number of GPUs.

    Raises:
        ClusterError: Fewer than `count` nodes are suitable.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = max((each.get("GPU", 0.0) for each in alive), default=0.0)
    suitable = [each for each in alive if each.get("GPU", 0.0) == gpus and each.get("CPU", 0.0) >= 1]
    if not suitable or len(suitable) < (count or 1):
        raise ClusterError(
            f"the Ray cluster has {len(suitable)} nodes with {gpus:g} GPUs and a core or more, and the run needs "
            f"{count or 1} (cluster.nodes): `ray status` lists them"
        )
    suitable.sort(key=lambda each: -each["CPU"])
    return [{name: each[name] for name in ("CPU", "GPU") if each.get(name)} for each in suitable[: count or None]]


async def _awaited(reference: Any) -> Any:
    return await reference
