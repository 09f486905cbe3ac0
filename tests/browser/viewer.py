"""`torl view` as a process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torl_sandbox.paths import cache_directory


def own_cache(directory: Path) -> str:
    """A value of XDG_CACHE_HOME below `directory`, with the sandbox's prepared interpreter and nothing else."""
    cache = directory / "cache" / "torl"
    cache.mkdir(parents=True)
    (cache / "sandbox").symlink_to(cache_directory("sandbox"))
    return str(cache.parent)


@contextmanager
def viewing(*runs: Path, options: tuple[str, ...] = ()) -> Iterator[str]:
    """The address of a server of these runs or files."""
    command = [sys.executable, "-m", "torl", "view", *map(str, runs), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1].rstrip("/")
        finally:
            server.terminate()
