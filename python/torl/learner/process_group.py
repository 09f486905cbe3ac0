"""The process group of the ranks: coming in, and going out without leaving a rank or a thread behind."""

import os
import sys
from datetime import timedelta
from typing import NoReturn

import torch

from torl.learner.messages import RankSetup
from torl.weights.control import local_address_for


def join_process_group(setup: RankSetup, rank: int, world_size: int) -> None:
    """Join the other ranks: NCCL on this rank's GPU, or gloo."""
    import deepspeed

    # A shared-memory all-reduce that only inference calls; building it takes half a minute and a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(
        "nccl" if cuda else "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        timeout=timedelta(seconds=setup.learner.learner.timeout_seconds),
        init_method=setup.master,
        rank=rank,
        world_size=world_size,
    )


def select_gloo_interface(host: str, port: int) -> None:
    """Have gloo use the network in which this machine reaches the controller, unless GLOO_SOCKET_IFNAME says another.

    By itself gloo takes the address that this machine's name resolves to, which need not be one that others reach.
    """
    import psutil

    own = local_address_for(host, port)
    faces = [name for name, ends in psutil.net_if_addrs().items() if own in {end.address for end in ends}]
    if faces:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", faces[0])


def leave_process_group() -> None:
    """Leave together with all other ranks."""
    import deepspeed

    # A rank that leaves while another still reads from it would end that one with an error.
    torch.distributed.barrier()
    deepspeed.comm.destroy_process_group()  # torch's own leaves DeepSpeed's references to the groups


def exit_rank(status: int) -> NoReturn:
    """End this process without finalizing the interpreter.

    DeepSpeed keeps references to the process groups (under ZeRO-3 in cycles that are never collected), and as long
    as one is held gloo's threads run on, whatever has been destroyed. A thread of theirs that lets go of a tensor while
    the interpreter is being finalized is unwound through C++ frames that do not allow it, and the process aborts:
    "terminate called without an active exception". What a rank has to leave behind has been left by now.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
