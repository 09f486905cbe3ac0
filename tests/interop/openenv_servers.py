"""Servers of OpenEnv's, each a separate program that takes its port as an argument."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import listening
from serving import until


@contextmanager
def serving(program: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of OpenEnv's, on this port, or on one that is free."""
    process = subprocess.Popen([sys.executable, str(program), str(port)], cwd=program.parent)
    try:
        until(lambda: process.poll() is not None or bool(listening(process.pid)), 60)
        assert process.poll() is None, "the server ended while it started"
        ((address, taken),) = listening(process.pid)
        yield f"http://{address}:{taken}", process
    finally:
        process.terminate()
        process.wait(60)
