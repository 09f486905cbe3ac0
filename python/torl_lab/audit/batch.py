"""The groups of a step and the batch that it learns from, derived once from its records for all checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from torl.base.types import ScoredGroup, ScoredTrajectory, UpdateNumbers
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey, keyed
from torl_lab.audit.checks import Check, group_members
from torl_lab.audit.naive.learner import naive_imitated, naive_mini_batches
from torl_lab.audit.naive.masks import naive_masks
from torl_lab.audit.naive.selection import NaiveSelection, naive_selection, naive_shuffled_grades

Groups = Mapping[str, Sequence[TrajectoryRecord]]
"""The records of each group, by its name."""


@dataclass(frozen=True)
class LearnedBatch:
    """The records that a step learns from, and what follows from them.

    Each part is derived when a check first needs it, and then kept. Places are those of the trajectories of the batch,
    branches included, in the order of the records.

    Attributes:
        records: Records of the step. Their advantages say which episodes are in the batch.
        step: Step.
        config: Configuration of the step.
        read_numbers: Function that reads the learner's per-token values. None skips them.
    """

    records: Sequence[TrajectoryRecord]
    step: int
    config: TrainConfig
    read_numbers: Callable[[], Mapping[TokenKey, UpdateNumbers]] = dict

    @cached_property
    def groups(self) -> Groups:
        """Groups of all records."""
        return group_members(self.records)

    @cached_property
    def trained(self) -> Sequence[TrajectoryRecord]:
        """All records with the grades that the step learns from: their own, or those that an ablation shuffles."""
        if self.config.ablation.shuffle != "rewards":
            return self.records
        grades = naive_shuffled_grades([record.grade for record in self.records], self.step, self.config)
        return [
            replace(record, grade=grade, branches=tuple(replace(each, grade=grade) for each in record.branches))
            for record, grade in zip(self.records, grades, strict=True)
        ]

    @cached_property
    def selection(self) -> NaiveSelection:
        """The groups that the step should learn from."""
        groups = group_members(self.trained).values()
        return naive_selection([scored_group(members) for members in groups], self.config)

    @cached_property
    def episodes(self) -> list[TrajectoryRecord]:
        """Records of the episodes of the batch."""
        return [record for record in self.trained if record.advantage is not None]

    @cached_property
    def trajectories(self) -> list[TrajectoryRecord]:
        """Records of the trajectories of the batch."""
        return [record for _, record in keyed(self.episodes)]

    @cached_property
    def keys(self) -> list[TokenKey]:
        """Keys of the trajectories in the learner's numbers of tokens."""
        return [key for key, _ in keyed(self.episodes)]

    @cached_property
    def numbers(self) -> Mapping[TokenKey, UpdateNumbers]:
        """The learner's numbers of tokens."""
        return self.read_numbers()

    @cached_property
    def masks(self) -> dict[str, list[bool]]:
        """Whether each mask of the run masks each trajectory."""
        return naive_masks(self.trajectories, self.config.selection)

    @cached_property
    def masked(self) -> list[bool]:
        """Whether some mask masks each trajectory."""
        return [any(mask[place] for mask in self.masks.values()) for place in range(len(self.trajectories))]

    @cached_property
    def tokens(self) -> list[int]:
        """Number of tokens with a loss of each trajectory."""
        pairs = zip(self.trajectories, self.masked, strict=True)
        return [0 if masked else int(each.trajectory.loss_mask_T.sum()) for each, masked in pairs]

    @cached_property
    def imitated(self) -> list[int]:
        """Number of imitated tokens of each trajectory."""
        pairs = zip(self.trajectories, self.masked, strict=True)
        return [0 if masked else naive_imitated(each, self.config.algorithm) for each, masked in pairs]

    @cached_property
    def lengths(self) -> list[int]:
        """Number of tokens of each trajectory, prompts included."""
        trajectories = [each.trajectory for each in self.trajectories]
        return [len(each.prompt.token_ids) + len(each.token_ids_T) for each in trajectories]

    @cached_property
    def learned(self) -> frozenset[int]:
        """Places of the trajectories that an optimizer step of the policy has."""
        if self.step < self.config.critic_only_steps:
            return frozenset()
        others = self.config.algorithm.learns_without_advantage
        return frozenset(
            place
            for place, record in enumerate(self.trajectories)
            if self.imitated[place] or (self.tokens[place] and (others or _has_advantage(record)))
        )

    def mini_batches(self, model: Literal["policy", "critic"]) -> list[list[int]]:
        """Return the places of the trajectories in each mini-batch of a model."""
        settings = self.config.algorithm if model == "policy" else self.config.critic
        sizes = [len(episode.episode_trajectories) for episode in self.episodes]
        return naive_mini_batches(sizes, settings.epochs, settings.mini_batches, self.config.run.seed, self.step, model)

    @cached_property
    def parts(self) -> list[list[int]]:
        """Places of the learned trajectories in each optimizer step of the policy that is taken."""
        found = [[place for place in part if place in self.learned] for part in self.mini_batches("policy")]
        return [part for part in found if part]


def scored_group(members: Sequence[TrajectoryRecord]) -> ScoredGroup:
    """Return the group of these records, with the rewards of their grades."""
    scored = (ScoredTrajectory(record.trajectory, record.grade, record.grade.reward) for record in members)
    return ScoredGroup(members[0].trajectory.prompt, tuple(scored))


def _has_advantage(record: TrajectoryRecord) -> bool:
    """Whether a trajectory has an advantage other than 0."""
    numbers = record.token_arrays.get("advantages")
    return bool(record.advantage) if numbers is None else bool(numbers[record.trajectory.loss_mask_T].any())


def check_groups(check: Check, groups: Groups, *, step: int, batch_id: int | str, samples: int, failed: int) -> None:
    """Check the names and the samples of groups, of which failed episodes are missing.

    `batch_id` is the first part of the groups' names: the step, or the name of an evaluation.
    """
    whole = list(range(samples))
    for name, members in groups.items():
        place = f"step {step}, {name}"
        numbers = [record.trajectory.sample_index for record in members]
        steps = {each.step for record in members for each in record.episode_trajectories}
        problems = {each.trajectory.prompt.problem.id for record in members for each in record.episode_trajectories}
        branches = {each.trajectory.group_id for record in members for each in record.branches} - {name}
        if steps != {step}:
            check.expect(place, f"records of step {step}", f"records of steps {sorted(steps)}")
        elif {f"{batch_id}/{problem}" for problem in problems} != {name} or branches:
            check.expect(place, f"records of the problem {name!r}", f"records of {sorted(problems | branches)}")
        else:
            partial = failed > 0 and numbers == sorted(set(numbers)) and set(numbers) <= set(whole)
            check.add(partial or numbers == whole, f"{place}: expected samples {whole}, found samples {numbers}")


def expected_trajectories(config: TrainConfig, row: Mapping[str, float] | None) -> int | None:
    """Return the number of trajectories of a step.

    None for a step without metrics (the run stopped before it wrote them), and if dynamic sampling dropped failed
    episodes.
    """
    if row is None:
        return None
    samples, failed = config.rollout.samples_per_prompt, int(row.get(names.FAILED_EPISODES, 0))
    if not config.selection.dynamic_sampling:
        return config.rollout.prompts_per_step * samples - failed
    filtered = [name for name in row if name in names.dropped_groups]
    groups = (names.TRAINED_GROUPS, names.SELECTION_FAILED, names.SELECTION_SMALL, names.SELECTION_SURPLUS, *filtered)
    return None if failed else int(sum(row.get(name, 0) for name in groups)) * samples


def check_selection(check: Check, batch: LearnedBatch) -> None:
    """Check that exactly the trajectories of the episodes that the selection keeps have an advantage."""
    kept_episodes = {
        (group.id, each.trajectory.sample_index) for group in batch.selection.batch for each in group.members
    }
    for name, members in batch.groups.items():
        kept = [(name, record.trajectory.sample_index) in kept_episodes for record in members]
        wanted = [keeps for keeps, record in zip(kept, members, strict=True) for _ in record.episode_trajectories]
        found = [each.advantage is not None for record in members for each in record.episode_trajectories]
        verb = f"keeps {sum(kept)} of {len(kept)} episodes" if any(kept) and not all(kept) else ""
        verb = verb or ("keeps it" if any(kept) else "drops it")
        place = f"step {batch.step}, {name}"
        check.add(
            found == wanted,
            f"{place}: expected {sum(wanted)} advantages, found {sum(found)} (the selection {verb})",
        )
