"""On a node of a cluster: what starts its learner ranks, and watches them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torl.errors import LearnerDiedError
from torl.learner.handshake import KEY_VARIABLE, ControllerAddress
from torl.runtime.cluster.logs import LogFolder
from torl.runtime.processes.children import describe_exit, log_tail
from torl.runtime.processes.stacks import dump_stacks

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank that an agent is to start."""

    rank: int
    local_rank: int
    local_world_size: int
    world_size: int
    devices: tuple[str, ...] | None
    """The GPUs of all ranks of its node, as CUDA_VISIBLE_DEVICES names them."""
    log: Path
    """Where the controller gathers what the rank prints."""

    def environment(self) -> dict[str, str]:
        """What torch.distributed and DeepSpeed read."""
        environment = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the controller has the store at which the ranks meet
        }
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        return environment


class RankLauncher:
    """Starts the ranks of its node. They end with its process."""

    def __init__(self) -> None:
        self._folder = LogFolder()
        self.logs = self._folder.tail
        self._started: dict[RankSpec, subprocess.Popen[bytes]] = {}

    async def start(self, order: RankSpec, controller: ControllerAddress, environment: Mapping[str, str]) -> None:
        """Start a rank. In the thread of the event loop: it is killed when that ends."""
        with self._log(order).open("ab") as output:
            self._started[order] = subprocess.Popen(  # noqa: ASYNC220 - a thread of asyncio would end, and the rank too
                [
                    *(sys.executable, "-m", "torl.learner.worker"),
                    *("--rank", str(order.rank), "--world-size", str(order.world_size)),
                    *("--controller", f"{controller.host}:{controller.port}", "--parent", str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    **environment,
                    **order.environment(),
                    KEY_VARIABLE: controller.key,
                },
            )

    async def watch(self) -> NoReturn:
        """Wait until a rank ends; raises LearnerDiedError with the end of its log."""
        while True:
            for order, process in self._started.items():
                if (status := process.poll()) is not None:
                    end = f"end of {order.log}:\n{log_tail(self._log(order))}"
                    raise LearnerDiedError(f"learner rank {order.rank} {describe_exit(status)}; {end}")
            await asyncio.sleep(_POLL_SECONDS)

    async def write_stacks(self) -> None:
        """Have the ranks write what they are doing to their logs."""
        there = {self._log(order): [process.pid] for order, process in self._started.items() if process.poll() is None}
        await asyncio.to_thread(dump_stacks, there)

    async def close(self) -> None:
        """End the ranks by force, if they have not ended."""
        for process in self._started.values():
            process.kill()
            await asyncio.to_thread(process.wait)
        self._folder.close()

    def _log(self, order: RankSpec) -> Path:
        return self._folder.path / order.log.name
