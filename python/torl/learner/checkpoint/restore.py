"""Putting a rank back as it was when a checkpoint was written, by however many ranks and at whichever ZeRO stage."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torl.errors import CheckpointError
from torl.learner.checkpoint.names import generators_name
from torl.learner.checkpoint.rng import restore_rng_states
from torl.learner.checkpoint.shard_index import ShardIndex
from torl.learner.optimizer_shards import MOMENTS, OptimizerShards


def restore_rank(engines: Mapping[str, OptimizerShards], directory: Path, *, rank: int) -> dict[str, int]:
    """Read this rank's share of each model's state and return the counters; every rank must call it.

    A rank that the writing learner did not have keeps the random generators that it was started with.

    Raises:
        CheckpointError: a file is missing or is of another model.
    """
    counters: dict[str, int] = {}
    for tag, state in engines.items():
        with ShardIndex(directory, tag) as index:
            _restore_state(state, index, directory)
            counters = index.facts["counters"]
        state.update_parameters()
    generators = directory / generators_name(rank)
    if generators.is_file():
        restore_rng_states(generators)
    return counters


@torch.no_grad()
def _restore_state(state: OptimizerShards, index: ShardIndex, directory: Path) -> None:
    steps: int = index.facts["steps"]
    state.set_steps(steps)
    kinds: tuple[Any, ...] = ("master", *MOMENTS) if steps else ("master",)
    for fragment in state.fragments:
        if index.shapes.get(fragment.name) != fragment.shape:
            raise CheckpointError(
                f"checkpoint {directory} has {fragment.name} of shape {index.shapes.get(fragment.name)}, the model has "
                f"{fragment.shape}: it was written with another model"
            )
        views = state.tensors(fragment)
        for kind in kinds:
            views[kind].copy_(index.read(kind, fragment.name, fragment.start, fragment.stop))
