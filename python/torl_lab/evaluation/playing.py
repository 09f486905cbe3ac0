"""Play the missing episodes of an evaluation, or grade its trajectories again."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

from torl.base.component import RunContext
from torl.base.errors import RecordError, ToolUnavailableError
from torl.base.runtime.processes.supervision import run_with_watchers, task_group
from torl.base.types import Group, Problem, Prompt, ScoredGroup
from torl.components.rewards import Reward, make_reward
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.evaluation import evaluation_player
from torl.rollout.grading import ProblemsById, grade_again
from torl.rollout.group_file import append_groups
from torl.rollout.model_directory import ModelDirectory, cap_to_context
from torl.rollout.startup import Rollouts, open_rollouts
from torl.run.config import EvaluateModelConfig, ProblemChoice
from torl.run.display.console import Console, ProgressLine
from torl.run.records.files import locked_directory
from torl_lab.evaluation.cells import (
    EvaluationCell,
    cells_in,
    read_problem_source,
    write_or_check_problems,
    write_or_check_settings,
)


async def play_model(
    config: EvaluateModelConfig,
    directory: Path,
    sets: Mapping[str, ProblemChoice],
    calls: Sequence[int],
    console: Console,
) -> None:
    """Play the missing episodes of a model on every problem set with every maximum number of calls.

    Raises:
        ConfigError: Existing files have other settings or problems, or are of another model, or another command writes
            them.
        TorlError: The model or the problems cannot be read, or a component failed. Written files are kept.
    """
    with locked_directory(directory, "command"):
        model = ModelDirectory.open(config.model.path, config.rollout.tools, config.rollout.environment)
        config = cap_to_context(config, model.path, console)
        with console.progress("comparing the model's files"):
            await asyncio.to_thread(write_or_check_settings, directory, str(config), model.path)
        problems = {
            name: model.problem_set(name, choice, config.data, config.evaluation, console)
            for name, choice in sets.items()
        }
        for name, encoded in problems.items():
            write_or_check_problems(directory, name, encoded, sets[name])
        modes = ["greedy"] * config.evaluation.greedy + ["sampled"] * (config.evaluation.samples_per_problem > 0)
        missing = [
            (cell, prompts)
            for name, number, mode in product(problems, calls, modes)
            for cell in [EvaluationCell(directory, name, number, mode)]
            if (prompts := _missing(cell, problems[name], config))
        ]
        if not missing:
            console.line(f"{directory.name}: all episodes were already played")
            return
        async with AsyncExitStack() as stack:
            rollouts = await stack.enter_async_context(open_rollouts(config, model, console, log_directory=directory))
            await run_with_watchers(
                play_cells(
                    missing, replace(rollouts, reward=rollouts.evaluation_reward or rollouts.reward), config, console
                ),
                *rollouts.watchers(config.rollout.stall_timeout_seconds),
            )


async def play_cells(
    missing: Sequence[tuple[EvaluationCell, Sequence[Prompt]]],
    rollouts: Rollouts,
    config: EvaluateModelConfig,
    console: Console,
) -> None:
    """Play the prompts that cells lack, all together: a cell begins while the last episodes of others are sampled.

    Raises:
        ToolUnavailableError: Episodes failed. All others were played.
        TorlError: A component failed. Written groups are kept.
    """
    episodes = sum(len(prompts) * _samples(cell, config) for cell, prompts in missing)
    failed: list[ToolUnavailableError] = []

    async def fill(cell: EvaluationCell, prompts: Sequence[Prompt]) -> None:
        name = f"{cell.directory.name} on {cell.set_name}, N = {cell.calls}, {cell.mode}"
        changes = {**config.evaluation.rollout, "max_tool_calls": cell.calls}
        evaluation = config.evaluation.model_copy(update={"rollout": changes})
        temperature = 0.0 if cell.mode == "greedy" else evaluation.apply_to(config.rollout).temperature
        try:
            await append_groups(
                rollouts,
                prompts,
                cell.file,
                name=name,
                batch_id=cell.batch_id,
                samples=_samples(cell, config),
                player=evaluation_player(rollouts.player, evaluation, temperature),
                on_episode=progress.advance,
            )
        except ToolUnavailableError as error:  # episodes of other cells may not need the tool
            failed.append(error)
        else:
            console.line(f"{name}: done")

    with console.progress("episodes", episodes) as progress:
        async with task_group() as tasks:
            for cell, prompts in missing:
                tasks.create_task(fill(cell, prompts))
    if failed:
        raise failed[0]


def _missing(cell: EvaluationCell, problems: EncodedPrompts, config: EvaluateModelConfig) -> tuple[Prompt, ...]:
    """Return the prompts of a cell without complete groups."""
    done = cell.file.drop_incomplete(_samples(cell, config))
    return tuple(prompt for prompt in problems.prompts if prompt.problem.id not in done)


def _samples(cell: EvaluationCell, config: EvaluateModelConfig) -> int:
    return 1 if cell.mode == "greedy" else config.evaluation.samples_per_problem


async def regrade(directory: Path, config: EvaluateModelConfig, console: Console) -> int:
    """Grade all trajectories of a model again and return the number of changed verdicts.

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
