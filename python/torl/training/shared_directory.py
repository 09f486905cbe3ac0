"""Whether the nodes that write into a run's directory see the controller's."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from torl.errors import ConfigError
from torl.runtime.cluster import Cluster


async def require_shared_storage(cluster: Cluster, directory: Path, nodes: Iterable[int]) -> None:
    """Raise ConfigError if the directory of one of `nodes` is another than the one that is here."""
    mark = _marked(directory)
    try:
        for node in sorted(set(nodes)):
            if not await cluster.run_on(node, Path.exists, mark):
                raise ConfigError(
                    f"run.directory: {mark.parent} is not the same on node {node}, which has learner ranks: they write "
                    "checkpoints there, so it must be on storage that the nodes share (logs come without)"
                )
    finally:
        mark.unlink()


def _marked(directory: Path) -> Path:
    """A new file in it, with a name of which no file system remembers that it was not there."""
    mark = directory.resolve() / f".seen-{secrets.token_hex(8)}"
    mark.touch()
    return mark
