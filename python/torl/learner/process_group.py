"""The process group of the ranks: joining it, and leaving it without a hanging rank or thread."""

import os
import sys
from datetime import timedelta
from typing import NoReturn

import torch

from torl.base.errors import LearnerError
from torl.components.weights.control import local_address_for
from torl.learner.messages import RankSetup


def join_process_group(setup: RankSetup, rank: int, world_size: int) -> torch.device:
    """Join the process group of all ranks, with NCCL on this rank's GPU or with gloo on the CPU, and return its device.

    Raises:
        LearnerError: The rank has been assigned a GPU that torch cannot use, or its allocator is unsafe.
    """
    if setup.on_gpu and not torch.cuda.is_available():
        raise LearnerError(
            f"rank {rank} has been assigned GPU {os.environ.get('CUDA_VISIBLE_DEVICES')}, which torch cannot use: "
            f"{_cuda_error()}; compare with what nvidia-smi and the driver's log report"
        )
    import deepspeed

    # An all-reduce over shared memory that only inference uses. Building it takes half a minute and a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    device = torch.device("cpu")
    if torch.cuda.is_available():
        _require_safe_allocator()
        # Otherwise cuBLAS may add parts of a product in bfloat16: a gradient of the weights is a sum over all tokens.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        _allocate_workspaces(device)
    deepspeed.init_distributed(
        "nccl" if device.type == "cuda" else "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        timeout=timedelta(seconds=setup.learner.learner.timeout_seconds),
        init_method=setup.init_method,
        rank=rank,
        world_size=world_size,
    )
    return device


def _allocate_workspaces(device: torch.device) -> None:
    """Make cuBLAS allocate its workspaces, one for each thread, while torch's cache is empty.

    They stay for good. Later they would be parts of cached blocks, which then could never be freed for an engine.
    """
    ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device, requires_grad=True)
    (ones @ ones).sum().backward()  # type: ignore[no-untyped-call]


def _require_safe_allocator() -> None:
    """Raise LearnerError if page-locked buffers above a threshold are not rounded to powers of two.

    torch 2.13 then reuses a freed buffer for a larger one, and an offloaded learner would overwrite its state:
    `get_free_block` in ATen/core/CachingHostAllocator.h compares only the rounded sizes.
    """
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "pinned_max_round_threshold_mb" in os.environ.get(variable, ""):
            raise LearnerError(
                f"{variable} sets pinned_max_round_threshold_mb, with which torch {torch.__version__} reuses "
                "page-locked buffers that are too small: remove the option"
            )


def _cuda_error() -> str:
    """Return torch's reason for the absence of CUDA."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:
        return str(error).strip()
    return "torch.cuda.is_available() is False"


def select_gloo_interface(host: str, port: int) -> None:
    """Make gloo use the network interface that reaches the controller, unless GLOO_SOCKET_IFNAME is set.

    By default gloo uses the address that this machine's name resolves to, which other machines may not reach.
    """
    import psutil

    address = local_address_for(host, port)
    interfaces = [
        name for name, addresses in psutil.net_if_addrs().items() if address in {each.address for each in addresses}
    ]
    if interfaces:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interfaces[0])


def leave_process_group() -> None:
    """Leave the process group together with all other ranks."""
    import deepspeed

    # A rank that leaves while another still reads from it would make that one fail.
    torch.distributed.barrier()
    deepspeed.comm.destroy_process_group()  # torch's function keeps DeepSpeed's references to the groups


def exit_rank(status: int) -> NoReturn:
    """Exit this process without finalizing the interpreter.

    DeepSpeed keeps references to the process groups (under ZeRO-3 in cycles that are never collected), and gloo's
    threads run as long as any reference exists. If one of these threads frees a tensor while the interpreter is being
    finalized, it is unwound through C++ frames that do not allow it, and the process aborts with "terminate called
    without an active exception". At this point a rank has released everything that outlives it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
