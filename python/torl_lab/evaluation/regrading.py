"""Grade the trajectories of an evaluation again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from torl.base.component import RunContext
from torl.base.errors import RecordError
from torl.base.types import Group, Problem, ScoredGroup
from torl.components.rewards import Reward, make_reward
from torl.rollout.grading import ProblemsById, grade_again
from torl.run.config import EvaluateModelConfig
from torl.run.display.console import Console, ProgressLine
from torl.run.records.files import locked_directory
from torl_lab.evaluation.cells import EvaluationCell, cells_in, read_problem_source


async def regrade(directory: Path, config: EvaluateModelConfig, console: Console) -> int:
    """Grade all trajectories of a model again and return the number of changed verdicts.

    Args:
        directory: Output directory of the model.
        config: Configuration with the reward.
        console: Console for progress.

    Raises:
        ConfigError: Another command writes the files.
        RewardError: The reward failed. The remaining files are unchanged.
        RecordError: The reward reads metadata of problems that their source lacks. The remaining files are unchanged.
    """
    with locked_directory(directory, "command"):
        reward = make_reward(config.evaluation.reward or config.reward)
        changed = 0
        try:
            with console.progress("starting the reward"):
                await reward.start(RunContext(directory=directory))
            for cell in cells_in(directory):
                before = cell.file.read()
                with console.progress(f"grading {directory.name} {cell.batch_id}", len(before)) as wait:
                    after = [each async for each in _graded_again(cell, before, reward, config.longest_response, wait)]
                cell.file.replace(after)
                changed += sum(
                    one.grade.correct is not other.grade.correct
                    for old, new in zip(before, after, strict=True)
                    for one, other in zip(old.members, new.members, strict=True)
                )
        finally:
            await reward.close()
        return changed


async def _graded_again(
    cell: EvaluationCell, groups: Sequence[ScoredGroup], reward: Reward, max_response_tokens: int, wait: ProgressLine
) -> AsyncIterator[ScoredGroup]:
    """Grade the groups of a cell again, with the metadata of their problems."""
    problems, reason = await asyncio.to_thread(_find_problems, cell, groups)
    for group in groups:
        trajectories = tuple(member.trajectory for member in group.members)
        graded = await grade_again(reward, Group(group.prompt, trajectories, max_response_tokens), problems)
        if graded is None:
            raise RecordError(
                f"{cell.file.path}: the reward reads the metadata of the problem {group.prompt.problem.id!r}, but "
                f"{reason}; restore it, or evaluate again with --suite {cell.set_name}=FILE"
            )
        wait.advance()
        yield graded


def _find_problems(cell: EvaluationCell, groups: Sequence[ScoredGroup]) -> tuple[dict[str, Problem], str]:
    """Return the problems of groups with their metadata, by id, and the reason why others are unknown."""
    try:
        source = ProblemsById(read_problem_source(cell.directory, cell.set_name))
    except RecordError as error:
        return {}, f"their source is unknown ({error})"
    problems = source.find(group.prompt.problem for group in groups)
    return problems, f"the source of the set {source.reason or 'contains other problems now'}"
