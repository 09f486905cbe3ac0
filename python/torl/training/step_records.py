"""The records of a step: each trajectory with its grade, its advantages and the inputs of the estimator."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torl.config import AlgorithmConfig
from torl.records.rows import TrajectoryRecord
from torl.training.step import PlayedStep
from torl.types import Float32Array, ScoredTrajectory, TrainingSample


def step_records(
    step: int, played: PlayedStep, samples: Sequence[TrainingSample], algorithm: AlgorithmConfig
) -> list[TrajectoryRecord]:
    """Make a record of every trajectory of a step; records of the batch contain advantages and their inputs.

    Args:
        step: Number of the step.
        played: Groups of the step.
        samples: Samples of the batch, in the order of its members.
        algorithm: Algorithm of the run.
    """
    batch = [member for group in played.batch for member in group.members]
    trajectories = [trajectory for member in batch for trajectory in member.trajectory.episode_trajectories]
    trained = {id(trajectory): sample for trajectory, sample in zip(trajectories, samples, strict=True)}

    def record(member: ScoredTrajectory) -> TrajectoryRecord:
        sample = trained.get(id(member.trajectory))
        if sample is None:
            return TrajectoryRecord(step, member.trajectory, member.grade)
        arrays = token_arrays(sample, len(member.trajectory), algorithm)
        return TrajectoryRecord(step, member.trajectory, member.grade, mean_advantage(sample), arrays)

    records = []
    for group in played.groups:
        for member in group.members:
            *branches, main = map(record, member.episode_trajectories)
            records.append(replace(main, branches=tuple(branches)))
    return records


def mean_advantage(sample: TrainingSample) -> float:
    """Return the mean advantage of the sampled tokens, which is the common one if all are equal."""
    if sample.advantages is None or not sample.loss_mask.any():
        return 0.0
    return float(sample.advantages[sample.loss_mask].mean(dtype=np.float64))


def token_arrays(sample: TrainingSample, response_tokens: int, algorithm: AlgorithmConfig) -> dict[str, Float32Array]:
    """Return per-token advantages and their inputs, by name; empty if the reward alone determines the advantages.

    Args:
        sample: Sample with advantages.
        response_tokens: Number of response tokens, which are the last tokens of the sample.
        algorithm: Algorithm of the run.
    """
    names: list[str] = []
    if algorithm.needs_critic:
        names.append("values")
    if algorithm.penalizes_rewards:
        names += ["old_logprobs", "ref_logprobs"]
    elif algorithm.keep_reference:
        names.append("ref_logprobs")
    if sample.token_rewards is not None:
        names.append("token_rewards")
    arrays = {name: getattr(sample, name) for name in (*names, "advantages")} if names else {}
    return {name: array[len(sample) - response_tokens :] for name, array in arrays.items()}
