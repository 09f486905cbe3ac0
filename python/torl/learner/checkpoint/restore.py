"""Restore a rank's state from a checkpoint of any number of ranks and any ZeRO stage."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torl.base.errors import CheckpointError
from torl.base.inputs import reason
from torl.learner.checkpoint.shards import ShardIndex, generators_name
from torl.learner.checkpoint.snapshot import restore_rng_states
from torl.learner.optimizer_shards import MOMENTS, OptimizerShards


def restore_rank(engines: Mapping[str, OptimizerShards], directory: Path, *, rank: int) -> dict[str, int]:
    """Restore this rank's part of each model's state, and return the counters. Every rank must call this.

    A rank without a counterpart in the checkpoint keeps its random generators.

    Args:
        engines: Optimizer state of each model, by its tag in file names.
        directory: Directory that ranks have written to.
        rank: Number of this rank.

    Raises:
        CheckpointError: A file is missing, is damaged, or belongs to another model.
    """
    counters: dict[str, int] = {}
    for tag, state in engines.items():
        with ShardIndex(directory, tag) as index:
            _restore_state(state, index, directory)
            counters = index.facts["counters"]
        state.update_parameters()
    generators = directory / generators_name(rank)
    if generators.is_file():
        try:
            restore_rng_states(generators)
        except (OSError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{generators}: not the states of random generators: {reason(error)}") from error
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
