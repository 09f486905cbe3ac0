"""The policy's weights in a checkpoint, for readers that are no ranks. Torch is loaded when they are read."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torl.config import LoraConfig
from torl.learner.checkpoint.names import MODEL_PREFIX, POLICY_TAG
from torl.learner.checkpoint.shard_index import ShardIndex

if TYPE_CHECKING:
    from torch import Tensor


def read_policy_weights(directory: Path) -> dict[str, "Tensor"]:
    """The policy's weights in the directory that ranks have written to, whole and in float32, in any process.

    Raises:
        CheckpointError: the files there cannot be read.
    """
    with ShardIndex(directory, POLICY_TAG) as index:
        return {
            name.removeprefix(MODEL_PREFIX): index.read("master", name, 0, math.prod(shape)).view(shape)
            for name, shape in index.shapes.items()
        }


def merge_adapters(
    weights: Mapping[str, "Tensor"], base: Mapping[str, "Tensor"], config: LoraConfig
) -> dict[str, "Tensor"]:
    """What `read_policy_weights` gave for a run with adapters, as weights of the model without.

    `base` is the model that the run began with, by its own names, in float32: adapters stand beside it.
    """
    merged = dict(base)
    for name, second in weights.items():
        if ".lora_B." in name:
            first = weights[name.replace(".lora_B.", ".lora_A.")]
            plain = f"{name.partition('.lora_B.')[0]}.weight"
            merged[plain] = base[plain] + config.alpha / config.rank * (second @ first)
    return merged
