"""Ranks that leave their memory between steps, in the precision and with the options of a GPU, on gloo."""

import gc
import hashlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from learner_fixtures import LEARNING_RATE, random_samples
from rank_chain import in_ranks
from torl.learner import deepspeed_engine
from torl.learner.batch import pack_batch
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.publishing import full_weights
from torl.learner.rank import Rank
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, LoraConfig, ModelConfig

STEPS = 3
LORA = LoraConfig(rank=2)


def learner_setup(model: Path, *, stage: int, lora: bool = False, offload: str = "", **algorithm: Any) -> LearnerSetup:
    """The settings of a learner in bfloat16. `offload` names parts that stay in CPU memory."""
    return LearnerSetup(
        # Liger's kernels need a GPU; test_liger.py compiles them.
        model=ModelConfig(path=str(model), lora=LORA if lora else LoraConfig(), kernels="torch"),
        learner=LearnerConfig(
            zero_stage=stage,
            dtype="bfloat16",
            learning_rate=LEARNING_RATE,
            max_row_tokens=90,
            cpu_threads=1,
            offload=offload or ("while_sampling" if stage >= 2 else "none"),
        ),
        algorithm=AlgorithmConfig.model_validate(algorithm),
        critic=CriticConfig(),
        temperature=1.0,
        total_steps=STEPS,
        seed=0,
    )


def build(setup: LearnerSetup, meeting: Path, world_size: int, number: int) -> Rank:
    """A rank on the CPU, whose communication overlaps with computation and whose AdamW is fused, as on a GPU."""
    configuration, adamw = deepspeed_engine.deepspeed_configuration, torch.optim.AdamW

    def overlapping(*arguments: Any, **options: Any) -> dict[str, Any]:
        settings = configuration(*arguments, **options)
        settings["zero_optimization"]["overlap_comm"] = True
        return settings

    with (
        patch.object(deepspeed_engine, "deepspeed_configuration", overlapping),
        patch.object(torch.optim, "AdamW", lambda *given, **options: adamw(*given, **options | {"fused": True})),
    ):
        return Rank(RankSetup(setup, 1, f"file://{meeting}"), number, world_size, lambda written: None)


def shards_of(rank: Rank) -> list[torch.Tensor]:
    """A rank's part of the model that its forward passes need, frozen weights included."""
    parameters = list(rank.engine.module.parameters())
    if rank.engine.zero_optimization_stage() == 3:
        return [parameter.ds_tensor for parameter in parameters]
    return [parameter for parameter in parameters if parameter.requires_grad]


def train(rank: Rank, *, moves: bool) -> tuple[list[str], int]:
    """Take steps, with or without moves in between.

    Return digests of this rank's state and of the complete weights, and the number of shards that did not move.
    """
    stayed = 0
    for step in range(STEPS):
        batch = pack_batch(random_samples(7, seed=step), max_row_tokens=90, ranks=rank.world_size)
        rank.update_policy(batch.rows[rank.rank], batch.sampled_tokens)
        if moves:
            rank.offload("optimizer")
            before = [shard.data_ptr() for shard in shards_of(rank)]
            rank.offload("parameters")
            stayed += sum(shard.data_ptr() == place for shard, place in zip(shards_of(rank), before, strict=True))
            rank.onload()
    shards = rank._shards["policy"]
    state = [tensor for fragment in shards.fragments for tensor in shards.tensors(fragment).values()]
    return [digest(tensor) for tensor in (*state, *(tensor for _, tensor in full_weights(rank.engine)))], stayed


def digest(tensor: torch.Tensor) -> str:
    """A hash of the bits of a tensor."""
    return hashlib.sha256(tensor.detach().flatten().view(torch.uint8).numpy()).hexdigest()


def train_twice(rank: Rank, initial: Path) -> dict[str, Any]:
    """Train from the same state without moves and with them."""
    rank.save_checkpoint(initial)
    rank._writer.wait()
    torch.distributed.barrier()
    straight, _ = train(rank, moves=False)
    rank.load_checkpoint(initial)
    moved, stayed = train(rank, moves=True)
    frozen = sum(not parameter.requires_grad for parameter in rank.engine.module.parameters())
    return {"straight": straight, "moved": moved, "stayed": stayed, "frozen": frozen}


def compare(model: Path, directory: Path, stage: int, lora: bool, world_size: int) -> list[dict[str, Any]]:
    """Return what each rank found."""
    torch.set_num_threads(1)
    gc.freeze()  # DeepSpeed collects garbage at each move, and the libraries' objects are many
    initial = directory / "initial"
    initial.mkdir()
    setup = learner_setup(model, stage=stage, lora=lora)
    return in_ranks(
        world_size, partial(build, setup, directory / "meeting", world_size), partial(train_twice, initial=initial)
    )


def trained_sums(rank: Rank) -> dict[str, float]:
    """Take steps; return the absolute sum of each part of the state and, from one rank, of the weights."""
    train(rank, moves=False)
    shards = rank._shards["policy"]
    sums = {
        f"{kind} of {fragment.name}": _absolute_sum(tensor)
        for fragment in shards.fragments
        for kind, tensor in shards.tensors(fragment).items()
    }
    weights = {name: _absolute_sum(tensor) for name, tensor in full_weights(rank.engine)}
    return sums | weights if rank.rank == 0 else sums


def _absolute_sum(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().abs().sum())


def offloaded(model: Path, directory: Path, stage: int, offload: str, world_size: int) -> list[dict[str, float]]:
    """Train without and with parts in CPU memory; return the sums over all ranks of each."""
    torch.set_num_threads(1)
    gc.freeze()
    found = []
    for number, parts in enumerate(["", offload]):
        setup = learner_setup(model, stage=stage, offload=parts)
        start = partial(build, setup, directory / f"meeting-{number}", world_size)
        total: Counter[str] = Counter()
        for sums in in_ranks(world_size, start, trained_sums):  # type: ignore[arg-type]
            total.update(sums)
        found.append(dict(total))
    return found
