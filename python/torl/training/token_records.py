"""The groups of a step whose tokens the learner records, and the records."""

from collections.abc import Mapping, Sequence
from random import Random

from torl.config import TrainConfig
from torl.learner.batch import carries_advantage
from torl.learner.imitation import count_imitated
from torl.records.tokens import TokenKey
from torl.seeds import derive_seed
from torl.types import ScoredGroup, TrainingSample, UpdateNumbers


def recorded_samples(
    groups: Sequence[ScoredGroup], samples: Sequence[TrainingSample], step: int, config: TrainConfig
) -> dict[int, UpdateNumbers | None]:
    """Return the samples whose tokens are recorded, for `Learner.update`.

    Args:
        groups: Groups of the batch.
        samples: Samples of the batch, in the order of the members' `episode_trajectories`.
        step: Step.
        config: Configuration of the run.
    """
    indices_by_group: dict[str, list[int]] = {}
    for index, (group, *_) in enumerate(_places(groups)):
        indices_by_group.setdefault(group, []).append(index)
    learned = [
        indices
        for indices in indices_by_group.values()
        if any(learns_from(samples[index], config) for index in indices)
    ]
    return dict.fromkeys(index for indices in draw_groups(learned, step, config) for index in indices)


def draw_groups(learned: Sequence[list[int]], step: int, config: TrainConfig) -> list[list[int]]:
    """Return the recorded ones of the groups that are learned from, by `run.token_groups` and the seed of the run."""
    wanted = config.run.token_groups
    if wanted == "all" or wanted >= len(learned):
        return list(learned)
    return Random(derive_seed(config.run.seed, step, "recorded groups")).sample(learned, wanted)


def learns_from(sample: TrainingSample, config: TrainConfig) -> bool:
    """Whether an optimizer step has the sample."""
    has_loss = bool(sample.loss_mask.any())
    return bool(count_imitated(sample)) or (
        has_loss and (config.algorithm.learns_without_advantage or carries_advantage(sample))
    )


def token_records(
    groups: Sequence[ScoredGroup], recorded: Mapping[int, UpdateNumbers | None]
) -> dict[TokenKey, UpdateNumbers]:
    """Return the numbers of the recorded samples by trajectory, without samples that no optimizer step has."""
    places = list(_places(groups))
    return {places[index]: numbers for index, numbers in sorted(recorded.items()) if numbers is not None}


def _places(groups: Sequence[ScoredGroup]) -> list[TokenKey]:
    return [
        TokenKey(each.trajectory.group_id, each.trajectory.sample_index, branch)
        for group in groups
        for member in group.members
        for branch, each in enumerate(member.episode_trajectories)
    ]
