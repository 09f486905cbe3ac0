"""Which nodes of a Ray cluster a run takes, and taking hold of them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from torl.errors import ClusterError
from torl.runtime.cluster.options import ClusterConfig

_POLL_SECONDS = 1.0


async def reserve_nodes(config: ClusterConfig) -> tuple[Any, int]:
    """A placement group with a bundle for each node that the run takes, and their number.

    Nodes that are still to come, or that others have, are waited for; a node that Ray finds dead is left out.

    Raises:
        ClusterError: they were not there and free in time.
    """
    import ray

    waits_for = ""
    try:
        async with asyncio.timeout(config.startup_timeout_seconds):
            while True:
                try:
                    bundles = bundles_for(ray.nodes(), config.nodes)
                except ClusterError as error:
                    waits_for = str(error)
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                waits_for = f"{len(bundles)} nodes with {bundles[0]} are not free: `ray status` says who has them"
                if (group := await _reserved(bundles, config)) is not None:
                    return group, len(bundles)
    except TimeoutError:
        raise ClusterError(
            f"{waits_for} (cluster.startup_timeout_seconds = {config.startup_timeout_seconds:g})"
        ) from None


def nodes_of(group: Any) -> list[str]:
    """The names of the nodes that a placement group is on now, by the numbers of its bundles."""
    import ray

    places: Mapping[int, str] = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [places[number] for number in sorted(places)]


async def _reserved(bundles: list[dict[str, float]], config: ClusterConfig) -> Any:
    """The group, once it is ready; None if its nodes are no longer the ones to ask for."""
    import ray

    group = ray.util.placement_group(bundles, strategy="STRICT_SPREAD")
    ready = asyncio.ensure_future(_awaited(group.ready()))
    kept = False
    try:
        while not ready.done() and bundles_for(ray.nodes(), config.nodes) == bundles:
            await asyncio.wait([ready], timeout=_POLL_SECONDS)
        kept = ready.done()
    except ClusterError:
        pass  # a node has gone
    finally:
        ready.cancel()
        if not kept:
            ray.util.remove_placement_group(group)
    return group if kept else None


def bundles_for(nodes: Sequence[Mapping[str, Any]], wanted: int | None) -> list[dict[str, float]]:
    """What a run reserves of the nodes that Ray lists: all cores and GPUs of each that it takes.

    Raises:
        ClusterError: there are not so many nodes.
    """
    there = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = max((each.get("GPU", 0.0) for each in there), default=0.0)
    fit = [each for each in there if each.get("GPU", 0.0) == gpus and each.get("CPU", 0.0) >= 1]
    if not fit or len(fit) < (wanted or 1):
        raise ClusterError(
            f"the Ray cluster has {len(fit)} nodes with {gpus:g} GPUs and a core or more, and the run needs "
            f"{wanted or 1} (cluster.nodes): `ray status` lists them"
        )
    fit.sort(key=lambda each: -each["CPU"])
    return [{name: each[name] for name in ("CPU", "GPU") if each.get(name)} for each in fit[: wanted or len(fit)]]


async def _awaited(reference: Any) -> Any:
    return await reference
