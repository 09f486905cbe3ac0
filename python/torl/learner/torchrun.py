"""The learner under torchrun: the ranks that exist are used.

Every process that torchrun started runs `python -m torl.train`. Rank 0's process is the controller: it starts
rank 0's worker as its own child and publishes its address in torchrun's store. The processes with other ranks call
`become_rank`, which turns them into workers that connect to the controller and serve until it says so.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from torl.errors import LearnerError
from torl.learner.joining import JOIN_SECONDS, ControllerAddress, RankListener, join

_CONTROLLER_KEY = "controller"


@dataclass(frozen=True, slots=True)
class TorchrunJob:
    """What torchrun tells a process about its job."""

    rank: int
    world_size: int
    local_world_size: int
    master_host: str
    master_port: int
    attempt: int  # torchrun restarts a failed job under the same store


def torchrun_job(environment: Mapping[str, str] = os.environ) -> TorchrunJob | None:
    """The job this process belongs to; None if torchrun did not start it.

    Raises:
        LearnerError: torchrun keeps no store that outlives its start (`--rdzv-backend static`).
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    if environment.get("TORCHELASTIC_USE_AGENT_STORE", "False") != "True":
        raise LearnerError("torchrun runs without a store of its own: start it with --rdzv-backend c10d")
    return TorchrunJob(
        rank=int(environment["RANK"]),
        world_size=int(environment["WORLD_SIZE"]),
        local_world_size=int(environment["LOCAL_WORLD_SIZE"]),
        master_host=environment["MASTER_ADDR"],
        master_port=int(environment["MASTER_PORT"]),
        attempt=int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )


def is_secondary_rank() -> bool:
    """Whether torchrun started this process to be a learner rank only: `become_rank` is all it has to do."""
    job = torchrun_job()
    return job is not None and job.rank > 0


def accept_ranks(job: TorchrunJob) -> dict[int, Connection]:
    """In the controller: publish the address and wait for ranks 1 to n-1. Blocks; takes no part in collectives.

    Raises:
        LearnerError: a rank did not come within ten minutes.
    """
    local = job.master_host in ("localhost", "127.0.0.1", "::1")
    host = "127.0.0.1" if local else job.master_host
    with RankListener(host, host if local else "") as listener:
        _store(job).set(_CONTROLLER_KEY, json.dumps(asdict(listener.address)))
        return listener.accept(range(1, job.world_size))


def connect_rank(job: TorchrunJob) -> Connection:
    """In the process of a rank from 1 on: the connection to the controller, which knows this rank's number then.

    Raises:
        LearnerError: no controller could be reached.
    """
    try:
        address = ControllerAddress(**json.loads(_store(job).get(_CONTROLLER_KEY)))
    except RuntimeError as error:
        raise LearnerError(f"rank {job.rank} found no controller: {error}") from error
    return join(address, job.rank)


def become_rank() -> NoReturn:
    """In a process that torchrun started with rank 1 or more: be a learner rank until the controller ends it.

    The process becomes `torl.learner.worker`, which exits with status 0 after an orderly end and 1 after any other.
    """
    os.execv(sys.executable, [sys.executable, "-m", "torl.learner.worker", "--torchrun"])


def _store(job: TorchrunJob) -> Any:
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    store = TCPStore(job.master_host, job.master_port, None, False, timedelta(seconds=JOIN_SECONDS))
    return PrefixStore(f"torl/attempt_{job.attempt}", store)
