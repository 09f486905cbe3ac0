"""The two ways a run gets fresh state, for fixtures: what holds must hold for both. And other work on the machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# The whole memory is compared after every run, and no run is answered with another's outcome.
KEPT = {"reuse_guest": True, "verify_every": 1, "result_cache_bytes": 0}
FRESH = {"reuse_guest": False, "result_cache_bytes": 0}
# CPU seconds by which a stopped run may exceed its limit, on a machine of any speed. Without its limit it would take
# longer. benchmarks/sandbox/speed.py measures the excess.
OVERSHOOT_SECONDS = 5.0
GUESTS = [pytest.param(KEPT, id="kept"), pytest.param(FRESH, id="fresh")]


@contextmanager
def busy_machine() -> Iterator[None]:
    """Two processes for each core that do nothing but compute."""
    cores = len(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
