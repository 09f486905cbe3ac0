"""Memory of ranks while they load a model under ZeRO-3. Call `measure_loading` in a separate process."""

import ctypes
import multiprocessing
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torl.learner.deepspeed_engine import deepspeed_configuration, load_causal_lm
from torl.learner.model.loading import build_empty_model
from torl.run.config import LearnerConfig, ModelConfig

_M_MMAP_THRESHOLD = -3  # <malloc.h>


def own_memory() -> int:
    """Bytes of this process's anonymous memory: without what it maps of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def _join(rank: int, world_size: int, meeting: str) -> None:
    import deepspeed

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), GLOO_SOCKET_IFNAME="lo")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=world_size,
    )


def load(rank: int, model_directory: str, meeting: str, answers: Any) -> None:
    import deepspeed

    _join(rank, 2, meeting)
    samples: list[int] = []
    gathered = deepspeed.zero.GatheredParameters

    class Sampled(gathered):  # type: ignore[misc, valid-type]
        """Looks at the memory whenever a tensor is whole."""

        def __exit__(self, *error: object) -> None:
            samples.append(own_memory())
            super().__exit__(*error)

    deepspeed.zero.GatheredParameters = Sampled
    before = own_memory()
    model = load_causal_lm(
        ModelConfig(path=model_directory), LearnerConfig(zero_stage=3, dtype="float32"), torch.device("cpu")
    )
    deepspeed.zero.GatheredParameters = gathered
    held = sum(parameter.ds_tensor.nbytes for parameter in model.parameters())
    total = 0.0
    for parameter in model.parameters():
        with gathered([parameter]):
            total += float(parameter.detach().double().square().sum())
    answers.put([rank, max(samples) - before, held, total, len(samples)])
    torch.distributed.barrier()
    os._exit(0)


def constants_of_sharded_models(configs: list[Any], meeting: str) -> list[dict[str, Any]]:
    """Type and values of each buffer in models that are built under ZeRO-3 in bfloat16, and built as they are."""
    _join(0, 1, meeting)
    settings = deepspeed_configuration(LearnerConfig(zero_stage=3, dtype="bfloat16"))
    found = []
    for config in configs:
        sharded, plain = (
            build_empty_model(config, torch.bfloat16, "sdpa", each, torch.device("cpu")) for each in (settings, None)
        )
        found.append(
            {name: (_facts(sharded.get_buffer(name)), _facts(buffer)) for name, buffer in plain.named_buffers()}
        )
    return found


def _facts(buffer: Tensor) -> tuple[str, list[Any]]:
    return str(buffer.dtype), buffer.flatten().tolist()


def measure_loading(model: str, meeting: str) -> list[Any]:
    """For each of two ranks: its number, the largest growth of its own memory while the model was read and handed out,
    the bytes of parameters that it holds afterwards, a checksum of the weights as it gathers them, and their number."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 16)  # small blocks are mapped too: freed memory is returned
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    processes = [context.Process(target=load, args=(rank, model, meeting, answers)) for rank in range(2)]
    for process in processes:
        process.start()
    found = sorted(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return found
