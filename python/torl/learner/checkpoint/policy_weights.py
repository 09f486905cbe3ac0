"""The policy's weights in a checkpoint, for readers that are no ranks. Torch is loaded when they are read."""

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from torl.errors import CheckpointError
from torl.learner.checkpoint.names import MODEL_PREFIX, POLICY_TAG

if TYPE_CHECKING:
    from torch import Tensor


def read_policy_weights(directory: Path) -> dict[str, "Tensor"]:
    """The policy's weights in a rank directory that `save_rank_state` wrote, whole and in float32, in any process.

    Raises:
        CheckpointError: DeepSpeed's files there cannot be read.
    """
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    try:
        if any((directory / POLICY_TAG).glob("*_optim_states.pt")):
            with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
                weights = get_fp32_state_dict_from_zero_checkpoint(str(directory), tag=POLICY_TAG)
        else:  # stage 0: every rank holds all of it
            path = directory / POLICY_TAG / "mp_rank_00_model_states.pt"
            weights = torch.load(path, map_location="cpu", weights_only=False)["module"]
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {directory}: its weights cannot be read: {error}") from error
    return {name.removeprefix(MODEL_PREFIX): tensor.float() for name, tensor in weights.items()}
