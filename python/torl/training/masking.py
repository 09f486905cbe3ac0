"""Apply the masks of a run: which trajectories of a step carry no loss. Each mask counts its trajectories by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from torl.algorithms.masks import wants_reference
from torl.config import SelectionConfig
from torl.types import BoolArray, Float32Array, ScoredTrajectory, TrainingSample


def masked_trajectories(members: Sequence[ScoredTrajectory], config: SelectionConfig) -> dict[str, BoolArray]:
    """Return for each mask whether it masks each trajectory; masks that need the reference model are left out.

    Several masks may mask a trajectory.
    """
    masks = {name: choice.bind() for name, choice in config.mask.items() if not wants_reference(choice.target)}
    return {name: np.array([mask(member) for member in members], np.bool_) for name, mask in masks.items()}


def masked_by_reference(
    members: Sequence[ScoredTrajectory], samples: Sequence[TrainingSample], config: SelectionConfig
) -> dict[str, BoolArray]:
    """Return for each mask that needs the reference model whether it masks each trajectory.

    Args:
        members: Trajectories.
        samples: Sample of each trajectory, with the reference model's logprobs.
        config: Configuration of the masks.
    """
    masks = {name: choice.bind() for name, choice in config.mask.items() if wants_reference(choice.target)}
    pairs = list(zip(members, samples, strict=True))
    return {name: np.array([mask(*pair) for pair in pairs], np.bool_) for name, mask in masks.items()}


def mask_samples(samples: Sequence[TrainingSample], masks: Mapping[str, BoolArray]) -> list[TrainingSample]:
    """Return the samples, without a loss on those that any mask masks."""
    masked = np.zeros(len(samples), np.bool_)
    for mask in masks.values():
        masked |= mask
    return [_without_loss(sample) if hidden else sample for sample, hidden in zip(samples, masked, strict=True)]


def _without_loss(sample: TrainingSample) -> TrainingSample:
    def zeros(array: Float32Array | None) -> Float32Array | None:
        return None if array is None else np.zeros_like(array)

    return replace(
        sample,
        loss_mask=np.zeros_like(sample.loss_mask),
        advantages=zeros(sample.advantages),
        returns=zeros(sample.returns),
    )
