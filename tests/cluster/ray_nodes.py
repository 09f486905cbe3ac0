"""The nodes of a Ray cluster on one machine, which a test kills and brings back."""

import contextlib
import os
import time
import uuid
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

_MARK = "TORL_TEST_NODES"
_STORE = 100 << 20
_OF_RAY = ("raylet", "gcs_server", "ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "/ray/")


class RayNodes:
    """The nodes, their number as a run counts them, and what runs on them."""

    def __init__(self, count: int) -> None:
        self._mark = os.environ[_MARK] = uuid.uuid4().hex
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False},
        )
        os.environ["RAY_ADDRESS"] = self._cluster.address
        self._nodes = [self._add() for _ in range(count)]
        ray.init(self._cluster.address, log_to_driver=False, configure_logging=False)

    def kill(self, number: int) -> None:
        """Kill the node that the run of now knows by this number, with all that runs on it."""
        while len(groups := self._groups()) != 1:
            time.sleep(0.1)  # it is about to take its nodes again
        name = groups[0]["bundles_to_node_id"][number]
        node = next(node for node in self._nodes if node.node_id == name)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def bring_back(self) -> None:
        """Start another node instead of one that was killed. In the main thread: Ray sets a signal handler."""
        self._nodes.append(self._add())

    def assert_nothing_left(self, seconds: float = 30) -> None:
        """Check that processes that runs started on the nodes exit within moments."""
        deadline = time.monotonic() + seconds
        while (left := self._started()) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, left

    def close(self) -> None:
        """End all nodes."""
        ray.shutdown()
        self._cluster.shutdown()
        del os.environ["RAY_ADDRESS"]

    def _groups(self) -> list[Any]:
        return [each for each in ray.util.placement_group_table().values() if each["state"] == "CREATED"]

    def _add(self) -> Any:
        return self._cluster.add_node(num_cpus=1, object_store_memory=_STORE)

    def _started(self) -> list[str]:
        """The command lines of what descends from the nodes and is not Ray's own."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if f"{_MARK}={self._mark}".encode() not in (entry / "environ").read_bytes():
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if " Z " not in (entry / "stat").read_text() and not any(word in line for word in _OF_RAY):
                    found.append(line[:200])
        return found
