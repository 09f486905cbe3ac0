"""The records of a step: each trajectory with its grade and what was learned from it."""

from collections.abc import Sequence
from dataclasses import replace

from torl.config import AlgorithmConfig
from torl.records.rows import TrajectoryRecord
from torl.training.samples import mean_advantage, token_arrays
from torl.training.step import PlayedStep
from torl.types import ScoredTrajectory, TrainingSample


def step_records(
    step: int, played: PlayedStep, samples: Sequence[TrainingSample], algorithm: AlgorithmConfig
) -> list[TrajectoryRecord]:
    """All that were played; those of the batch with their advantages and what these were made of.

    `samples` are those of the batch's members, in their order.
    """
    batch = [member for group in played.batch for member in group.members]
    trajectories = [trajectory for member in batch for trajectory in member.trajectory.episode_trajectories]
    learned = {id(trajectory): sample for trajectory, sample in zip(trajectories, samples, strict=True)}

    def record(member: ScoredTrajectory) -> TrajectoryRecord:
        sample = learned.get(id(member.trajectory))
        if sample is None:
            return TrajectoryRecord(step, member.trajectory, member.grade)
        numbers = token_arrays(sample, len(member.trajectory), algorithm)
        return TrajectoryRecord(step, member.trajectory, member.grade, mean_advantage(sample), numbers)

    records = []
    for group in played.groups:
        for member in group.members:
            *branches, main = map(record, member.episode_trajectories)
            records.append(replace(main, branches=tuple(branches)))
    return records
