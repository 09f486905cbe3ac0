"""The checks of groups: complete samples, and advantages only for the episodes that the selection keeps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torl.base.types import ScoredGroup, ScoredTrajectory
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.checks import Check, group_members
from torl_lab.audit.history import groups_of_row
from torl_lab.audit.naive.selection import naive_selection, naive_shuffled_grades

Groups = Mapping[str, Sequence[TrajectoryRecord]]
"""The records of each group, by its name."""


def check_groups(check: Check, groups: Groups, *, step: int, batch_id: int | str, samples: int, failed: int) -> None:
    """Check the names and the samples of groups.

    Args:
        check: Result that the groups are counted in.
        groups: Groups of a file.
        step: Step of the file.
        batch_id: First part of the groups' names: the step, or the name of an evaluation.
        samples: Number of trajectories per prompt.
        failed: Number of failed episodes, which are missing from their groups.
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
    """Return the number of trajectories of a step; None if it cannot be known.

    It is unknown for a step without metrics, and if dynamic sampling dropped failed episodes.

    Args:
        config: Configuration of the step.
        row: Metrics of the step. None if the run stopped before it wrote them.
    """
    samples, failed = config.rollout.samples_per_prompt, 0 if row is None else int(row.get(names.FAILED_EPISODES, 0))
    if not config.selection.dynamic_sampling:
        return None if row is None else config.rollout.prompts_per_step * samples - failed
    return None if row is None or failed else groups_of_row(row) * samples


@dataclass(frozen=True, slots=True)
class RecordedSelection:
    """The selection of a step, from its records.

    Attributes:
        kept: Episodes that are trained on: the names of their groups and their samples.
        counts: Metrics of the selection, without the number of rounds.
    """

    kept: frozenset[tuple[str, int]]
    counts: Mapping[str, float]

    @classmethod
    def from_records(cls, groups: Groups, config: TrainConfig) -> "RecordedSelection":
        """Select the groups of a step again."""
        chosen = naive_selection(trained_groups(groups.values(), config), config)
        kept = frozenset((group.id, each.trajectory.sample_index) for group in chosen.batch for each in group.members)
        return cls(kept, {names.TRAINED_GROUPS: len(chosen.batch), **chosen.counts})


def check_selection(check: Check, groups: Groups, step: int, selection: RecordedSelection) -> None:
    """Check that exactly the trajectories of the kept episodes have an advantage."""
    for name, members in groups.items():
        kept = [(name, record.trajectory.sample_index) in selection.kept for record in members]
        wanted = [keeps for keeps, record in zip(kept, members, strict=True) for _ in record.episode_trajectories]
        found = [each.advantage is not None for record in members for each in record.episode_trajectories]
        verb = f"keeps {sum(kept)} of {len(kept)} episodes" if any(kept) and not all(kept) else ""
        verb = verb or ("keeps it" if any(kept) else "drops it")
        example = f"step {step}, {name}: expected {sum(wanted)} advantages, found {sum(found)} (the selection {verb})"
        check.add(found == wanted, example)


def trained_groups(groups: Iterable[Sequence[TrajectoryRecord]], config: TrainConfig) -> list[ScoredGroup]:
    """Return groups of a step with the grades that they are selected by (`trained_records`)."""
    trained = trained_records([record for members in groups for record in members], config)
    return [scored_group(members) for members in group_members(trained).values()]


def trained_records(records: Sequence[TrajectoryRecord], config: TrainConfig) -> Sequence[TrajectoryRecord]:
    """Return the records of a step with the grades that it learns from: their own, or those that an ablation shuffles.

    Args:
        records: All records of the step, or those of its first rounds.
        config: Configuration of the step.
    """
    if config.ablation.shuffle != "rewards" or not records:
        return records
    grades = naive_shuffled_grades([record.grade for record in records], records[0].step, config)
    return [
        replace(record, grade=grade, branches=tuple(replace(each, grade=grade) for each in record.branches))
        for record, grade in zip(records, grades, strict=True)
    ]


def scored_group(members: Sequence[TrajectoryRecord]) -> ScoredGroup:
    """Return the group of these records, with the rewards of their grades."""
    scored = (ScoredTrajectory(record.trajectory, record.grade, record.grade.reward) for record in members)
    return ScoredGroup(members[0].trajectory.prompt, tuple(scored))
