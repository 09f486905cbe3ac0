"""Learner ranks one after another, each group of another size and ZeRO stage, that hand a checkpoint on.

`run_chain` forks the ranks of each link and drives them without a controller: call it in a separate process. Each
link takes the checkpoint of the one before, says whether what it holds then is what was written, takes a step, and
writes its own.
"""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from learner_fixtures import GRADIENT_CLIP, LEARNING_RATE, TEMPERATURE, random_samples
from torl.base.errors import LearnerError
from torl.learner.batch import pack_batch
from torl.learner.checkpoint.shards import ShardIndex
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.optimizer_shards import MOMENTS
from torl.learner.publishing import full_weights
from torl.learner.rank import Rank
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig

STEPS = [random_samples(9, seed=1), random_samples(5, seed=2), random_samples(6, seed=3)]
# ZeRO stage and number of ranks, by precision. In bfloat16 DeepSpeed has four classes of optimizers for them.
LINKS = {"float32": [(3, 2), (2, 1), (0, 2)], "bfloat16": [(2, 2), (1, 1), (0, 2), (3, 2), (1, 2)]}


def in_ranks(world_size: int, build: Callable[[int], Rank], use: Callable[[Rank], Any]) -> list[Any]:
    """Return the result of `use` for each rank, from separate processes."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child(number: int) -> None:
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(world_size), GLOO_SOCKET_IFNAME="lo")
        rank = build(number)
        answers.put((number, use(rank)))
        rank.close()
        os._exit(0)

    processes = [context.Process(target=child, args=(number,)) for number in range(world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    return [value for _, value in sorted((answers.get() for _ in processes), key=lambda answer: answer[0])]


def builder(model: Path, meeting: Path, zero_stage: int, world_size: int, dtype: str) -> Callable[[int], Rank]:
    """Makes the ranks of a learner."""
    setup = LearnerSetup(
        model=ModelConfig(path=str(model)),
        learner=LearnerConfig(
            zero_stage=zero_stage, dtype=dtype, learning_rate=LEARNING_RATE, gradient_clip=GRADIENT_CLIP
        ),
        algorithm=AlgorithmConfig(),
        critic=CriticConfig(),
        temperature=TEMPERATURE,
        total_steps=3,
        seed=0,
    )
    return lambda number: Rank(RankSetup(setup, 1, f"file://{meeting}"), number, world_size, lambda written: None)


def take_step(rank: Rank, step: int) -> None:
    batch = pack_batch(STEPS[step], max_row_tokens=90, ranks=rank.world_size)
    rank.update_policy(batch.rows[rank.rank], batch.sampled_tokens)


def go_and_come_back(rank: Rank, written: Path) -> str:
    """Offload everything, write a checkpoint, and bring it back; return what was still in its place in between."""
    shards = rank._shards["policy"]
    state = [("master", master) for master in shards.masters]
    if rank.engine.zero_optimization_stage() == 3:
        state += [(name, moments[name]) for moments in shards.adamw.state.values() for name in MOMENTS]
        state.append(("gradients", rank.engine.optimizer.grad_partitions_flat_buffer))
    places = [(name, StorageWeakRef(tensor.untyped_storage())) for name, tensor in state]
    del state
    rank.offload("optimizer")
    left = [name for name, place in places if not place.expired()]
    rank.offload("parameters")
    with pytest.raises(LearnerError, match="parameters must be brought back first: call onload"):
        rank.export(Path("nowhere"))
    with pytest.raises(LearnerError, match="optimizer and parameters must be brought back"):
        take_step(rank, 0)
    rank.save_checkpoint(written)
    rank.onload()
    return ", ".join(left)


def whole(directory: Path) -> dict[str, torch.Tensor]:
    """All of the optimizer's state in a checkpoint."""
    with ShardIndex(directory, "policy") as index:
        kinds = ("master", *MOMENTS) if index.facts["steps"] else ("master",)
        return {
            f"{kind}/{name}": index.read(kind, name, 0, torch.Size(shape).numel())
            for kind in kinds
            for name, shape in index.shapes.items()
        }


def equal(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


def run_chain(model: Path, directory: Path, precision: str) -> list[dict[str, Any]]:
    """Return the findings of each link."""
    torch.set_num_threads(1)
    found = []
    before: Path | None = None
    for step, (zero_stage, world_size) in enumerate(LINKS[precision]):
        taken, again = directory / f"{step}-taken", directory / f"{step}-again"
        written = directory / f"{step}-written" if zero_stage >= 2 else again
        for made in {taken, written, again}:
            made.mkdir()

        def use(
            rank: Rank,
            zero_stage: int = zero_stage,
            before: Path | None = before,
            step: int = step,
            taken: Path = taken,
            written: Path = written,
            again: Path = again,
        ) -> tuple[str, float]:
            if before is not None:
                rank.load_checkpoint(before)
            rank.save_checkpoint(taken)
            total = sum(float(tensor.double().abs().sum()) for _, tensor in full_weights(rank.engine))
            if step < len(STEPS):
                take_step(rank, step)
            left = go_and_come_back(rank, written) if zero_stage >= 2 else ""
            rank.save_checkpoint(again)
            return left, total

        ranks = builder(model, directory / f"{step}-meeting", zero_stage, world_size, precision)
        answers = in_ranks(world_size, ranks, use)
        state = whole(taken)
        masters = [tensor for key, tensor in state.items() if key.startswith("master/")]
        rounded = sum(float(tensor.to(getattr(torch, precision)).double().abs().sum()) for tensor in masters)
        found.append(
            {
                "link": [zero_stage, world_size],
                "as_written": before is None or equal(state, whole(before)),
                "came_back": equal(whole(written), whole(again)),
                "parameters_follow_masters": all(abs(total - rounded) < 1e-9 * rounded for _, total in answers),
                "left": [left for left, _ in answers],
                "directory": str(written),
            }
        )
        before = written
    return found
