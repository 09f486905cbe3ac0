"""A file of graded groups that grows group by group, so that a killed command resumes."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from torl.base.errors import ToolUnavailableError
from torl.base.types import Prompt, ScoredGroup, ScoredTrajectory
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_group, with_problem
from torl.rollout.played_output import problem_digest
from torl.rollout.scheduler import play_groups
from torl.rollout.startup import Rollouts
from torl.run.display.console import Console
from torl.run.records.files import append_atomically, atomic_write
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord, encode_row, encode_trajectory, group_records

_STEP = 0  # of the records of an untrained model


class GroupSink(Protocol):
    """A file that takes finished groups."""

    def append(self, group: ScoredGroup) -> None:
        """Append a group atomically."""


@dataclass(frozen=True, slots=True)
class GroupFile:
    """Trajectories as rows of JSON: groups in the order in which they finished, each in the order of its samples.

    Every method raises a `RecordError` if the file cannot be read or written, or is damaged.
    """

    path: Path

    def drop_incomplete(self, samples: int) -> dict[str, str]:
        """Remove incomplete groups, which a killed command left; return the digests of the others' problems by id."""
        if not self.path.exists():
            return {}
        problems = Counter(record.trajectory.prompt.problem for record in read_trajectories(self.path))
        complete = {problem.id: problem_digest(problem) for problem, count in problems.items() if count == samples}
        records = read_trajectories(self.path)
        self._write(record for record in records if record.trajectory.prompt.problem.id in complete)
        return complete

    def append(self, group: ScoredGroup) -> None:
        """Append a group atomically."""
        append_atomically(self.path, b"".join(map(_line, group_records(_STEP, [group]))))

    def replace(self, groups: Iterable[ScoredGroup]) -> None:
        """Replace all groups of the file."""
        self._write(group_records(_STEP, groups))

    def read(self, prompts: Sequence[Prompt] | None = None) -> list[ScoredGroup]:
        """Read groups.

        Args:
            prompts: The prompts whose groups are read, in this order and with the metadata of their problems. By
                default all groups in the order of the file, without metadata.
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


async def play_to_file(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    output: GroupSink,
    console: Console,
    *,
    name: str,
    batch_id: int | str,
    samples: int,
    player: EpisodePlayer | None = None,
) -> None:
    """Play and grade prompts as `append_groups` does, with a line of progress on the console."""
    with console.progress(name, len(prompts) * samples) as progress:
        await append_groups(
            rollouts,
            prompts,
            output,
            name=name,
            batch_id=batch_id,
            samples=samples,
            player=player or rollouts.player,
            on_episode=progress.advance,
        )


async def append_groups(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    output: GroupSink,
    *,
    name: str,
    batch_id: int | str,
    samples: int,
    player: EpisodePlayer,
    on_episode: Callable[[], object],
) -> None:
    """Play and grade prompts, and append each group to the file as it finishes.

    Args:
        rollouts: The running components.
        prompts: Prompts whose groups the file does not contain.
        output: The file.
        name: Name of the episodes in errors.
        batch_id: Batch of the episodes, from which their seeds are derived.
        samples: Number of trajectories per prompt.
        player: Player of the episodes.
        on_episode: Callback for each episode that ends.

    Raises:
        ToolUnavailableError: Episodes failed. Their groups are not in the file.
        EngineError, SandboxError, RewardError: The host failed.
        RecordError: The file cannot be written.
    """
    failures: list[ToolUnavailableError] = []
    groups = play_groups(
        player,
        prompts,
        batch_id=batch_id,
        samples_per_prompt=samples,
        on_episode=on_episode,
        on_failure=failures.append,
    )
    async with aclosing(groups):
        async for group in groups:
            if len(group.trajectories) < samples:
                continue
            scored = await score_group(rollouts.reward, group, player.open_calls)
            await asyncio.to_thread(output.append, scored)
    if failures:
        raise ToolUnavailableError(
            f"{name}: {len(failures)} episodes failed; run the command again to play their problems. "
            f"Last error: {failures[-1]}"
        ) from failures[-1]


def _group(prompt: Prompt, members: Sequence[ScoredTrajectory]) -> ScoredGroup:
    in_order = sorted(members, key=lambda member: member.trajectory.sample_index)
    return ScoredGroup(
        prompt,
        tuple(replace(member, trajectory=with_problem(member.trajectory, prompt.problem)) for member in in_order),
    )


def _line(record: TrajectoryRecord) -> bytes:
    return encode_row(encode_trajectory(record))
