"""From trajectories and their advantages to what the learner trains on."""

from collections.abc import Sequence

import numpy as np

from torl.algorithms.advantages import spread_over_tokens
from torl.types import Float32Array, TrainingSample, Trajectory


def training_samples(trajectories: Sequence[Trajectory], advantages_N: Float32Array) -> list[TrainingSample]:
    """One sample for each trajectory: its advantage stands on every sampled token and is 0 on all others.

    Args:
        trajectories: N of them.
        advantages_N: one advantage for each.

    Raises:
        ValueError: the numbers differ.
    """
    return [
        _training_sample(trajectory, float(advantage))
        for trajectory, advantage in zip(trajectories, advantages_N, strict=True)
    ]


def _training_sample(trajectory: Trajectory, advantage: float) -> TrainingSample:
    prompt = trajectory.prompt.token_ids
    no_prompt_logprobs = np.zeros(len(prompt), np.float32)
    loss_mask = np.concatenate([np.zeros(len(prompt), np.bool_), trajectory.loss_mask_T])
    return TrainingSample(
        token_ids=np.concatenate([np.asarray(prompt, np.int32), trajectory.token_ids_T]),
        loss_mask=loss_mask,
        rollout_logprobs=np.concatenate([no_prompt_logprobs, trajectory.rollout_logprobs_T]),
        advantages=spread_over_tokens(advantage, loss_mask),
    )
