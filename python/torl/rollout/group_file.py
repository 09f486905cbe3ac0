"""A file of graded groups that grows by one group at a time, so that a killed command continues where it was."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torl.records.files import append_atomically, atomic_write
from torl.records.reading import read_trajectories
from torl.records.rows import TrajectoryRecord, encode_row, encode_trajectory, group_records
from torl.types import Prompt, ScoredGroup, ScoredTrajectory, Trajectory

_STEP = 0  # of the records: nothing was learned


@dataclass(frozen=True, slots=True)
class GroupFile:
    """Trajectories as rows of JSON, group by group, each in its samples' order; the groups as they ended.

    Every method raises a `RecordError` where the file cannot be read or written, or is damaged.
    """

    path: Path

    def drop_incomplete(self, samples: int) -> set[str]:
        """The problems whose groups are whole; what a kill left of others is taken out of the file."""
        if not self.path.exists():
            return set()
        records = list(read_trajectories(self.path))
        counts = Counter(record.trajectory.prompt.problem.id for record in records)
        whole = {problem for problem, count in counts.items() if count == samples}
        self._write(record for record in records if record.trajectory.prompt.problem.id in whole)
        return whole

    def append(self, group: ScoredGroup) -> None:
        """Add a group: all of it, or nothing."""
        append_atomically(self.path, b"".join(map(_line, group_records(_STEP, [group]))))

    def replace(self, groups: Iterable[ScoredGroup]) -> None:
        """Put these groups in the place of all others."""
        self._write(group_records(_STEP, groups))

    def read(self, prompts: Sequence[Prompt] | None = None) -> list[ScoredGroup]:
        """The groups of these prompts that are in the file, in their order, with the problems' metadata.

        All groups, in the file's order, if none are given; problems have no metadata then.
        """
        found: dict[str, list[ScoredTrajectory]] = {}
        for record in read_trajectories(self.path) if self.path.exists() else ():
            scored = ScoredTrajectory(record.trajectory, record.grade, record.grade.reward)
            found.setdefault(record.trajectory.prompt.problem.id, []).append(scored)
        if prompts is None:
            return [_group(members[0].trajectory.prompt, members) for members in found.values()]
        return [_group(prompt, found[prompt.problem.id]) for prompt in prompts if prompt.problem.id in found]

    def _write(self, records: Iterable[TrajectoryRecord]) -> None:
        with atomic_write(self.path) as file:
            for record in records:
                file.write(_line(record))


def _group(prompt: Prompt, members: Sequence[ScoredTrajectory]) -> ScoredGroup:
    in_order = sorted(members, key=lambda member: member.trajectory.sample_index)
    return ScoredGroup(
        prompt,
        tuple(replace(member, trajectory=_asked(prompt, member.trajectory)) for member in in_order),
    )


def _asked(prompt: Prompt, trajectory: Trajectory) -> Trajectory:
    """With the problem as it was read; what a program or an environment began with is not what the template makes."""
    own = replace(trajectory.prompt, problem=prompt.problem)
    return replace(trajectory, prompt=own, branches=tuple(_asked(prompt, branch) for branch in trajectory.branches))


def _line(record: TrajectoryRecord) -> bytes:
    return encode_row(encode_trajectory(record))
