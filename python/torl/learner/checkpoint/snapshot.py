"""What a rank has to write, copied at one moment, so that the training can go on while it is written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torl.learner.checkpoint.names import METADATA, generators_name, shard_name
from torl.learner.checkpoint.rng import rng_states
from torl.learner.checkpoint.shard_file import write_hashed, write_shard
from torl.learner.optimizer_shards import OptimizerShards


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One rank's part of a checkpoint, in memory."""

    shards: dict[str, tuple[dict[str, Tensor], dict[str, str]]]  # file name: tensors and metadata
    generators: bytes
    rank: int

    def write(self, directory: Path) -> dict[str, dict[str, Any]]:
        """Write it into an existing directory; returns what the manifest says of each file.

        Raises:
            OSError: a file could not be written.
        """
        files = {name: write_shard(directory / name, *shard) for name, shard in self.shards.items()}
        name = generators_name(self.rank)
        return files | {name: write_hashed(directory / name, [memoryview(self.generators)])}


def take_snapshot(engines: Mapping[str, OptimizerShards], *, rank: int, counters: Mapping[str, int]) -> Snapshot:
    """Copy what this rank writes of each model's state; `engines` by the tags that their files get.

    It takes as much memory of the host as the state has: 12 bytes for each parameter, divided by the ranks.
    """
    shards = {}
    for tag, state in engines.items():
        tensors: dict[str, Tensor] = {}
        fragments: dict[str, Any] = {}
        for fragment in state.fragments:
            first, size = fragment.written_from - fragment.start, fragment.written_to - fragment.written_from
            if size <= 0:
                continue
            fragments[fragment.name] = (fragment.written_from, fragment.written_to, fragment.shape)
            for kind, view in state.tensors(fragment).items():
                tensors[f"{kind}/{fragment.name}"] = _copy(view.narrow(0, first, size))
        facts = {"steps": state.steps, "counters": dict(counters)}
        metadata = {METADATA: json.dumps({"facts": facts, "fragments": fragments})}
        shards[shard_name(tag, rank)] = (tensors, metadata)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return Snapshot(shards, rng_states(), rank)


def _copy(tensor: Tensor) -> Tensor:
    on_gpu = tensor.device.type == "cuda"
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
    return host.copy_(tensor, non_blocking=on_gpu)
