"""The records of a step: each trajectory with its grade and what was learned from it."""

from collections.abc import Sequence

from torl.config import AlgorithmConfig
from torl.records.rows import TrajectoryRecord
from torl.training.samples import mean_advantage, token_numbers
from torl.training.step import PlayedStep
from torl.types import TrainingSample


def step_records(
    step: int, played: PlayedStep, samples: Sequence[TrainingSample], algorithm: AlgorithmConfig
) -> list[TrajectoryRecord]:
    """All that were played; those of the batch with their advantages and what these were made of.

    `samples` are those of the batch's members, in their order.
    """
    batch = [member.trajectory for group in played.batch for member in group.members]
    learned = {id(trajectory): sample for trajectory, sample in zip(batch, samples, strict=True)}
    records = []
    for group in played.groups:
        for member in group.members:
            sample = learned.get(id(member.trajectory))
            if sample is None:
                records.append(TrajectoryRecord(step, member.trajectory, member.grade))
                continue
            numbers = token_numbers(sample, len(member.trajectory), algorithm)
            records.append(TrajectoryRecord(step, member.trajectory, member.grade, mean_advantage(sample), numbers))
    return records
