"""A Ray cluster on this machine: a head without cores, and three nodes. `make test-cluster` has Ray."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]

if find_spec("ray"):
    from ray_nodes import RayNodes

    @pytest.fixture(scope="session")
    def nodes() -> Iterator[RayNodes]:
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
        started = RayNodes(3)
        yield started
        started.close()
