"""The policy's weights in a checkpoint, for readers that are no ranks. Torch is loaded when they are read."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

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
