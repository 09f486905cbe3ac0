"""Play the missing episodes of an evaluation."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from torl.base.errors import ToolUnavailableError
from torl.base.runtime.processes.supervision import run_with_watchers, task_group
from torl.base.types import Prompt
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.evaluation import evaluation_player
from torl.rollout.group_file import append_groups
from torl.rollout.model_directory import ModelDirectory, cap_to_context
from torl.rollout.startup import Rollouts, open_rollouts
from torl.run.config import EvaluateModelConfig, ProblemChoice
from torl.run.display.console import Console
from torl.run.records.files import locked_directory
from torl_lab.evaluation.cells import EvaluationCell, write_or_check_problems, write_or_check_settings


async def play_model(
    config: EvaluateModelConfig,
    directory: Path,
    sets: Mapping[str, ProblemChoice],
    calls: Sequence[int],
    console: Console,
) -> None:
    """Play the missing episodes of a model on every problem set with every number of calls.

    Args:
        config: Configuration of the evaluation.
        directory: Output directory of the model.
        sets: Problem sets by name.
        calls: Maximum numbers of tool calls.
        console: Console for progress.

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
        missing = [
            (cell, prompts)
            for name, encoded in problems.items()
            for number in calls
            for cell in _cells(directory, name, number, config)
            if (prompts := _missing(cell, encoded, config))
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
    """Play all cells together: a cell begins while the last episodes of others are sampled.

    Args:
        missing: Cells with the prompts that they lack.
        rollouts: The running components.
        config: Configuration of the evaluation.
        console: Console for progress.

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


def _cells(directory: Path, set_name: str, calls: int, config: EvaluateModelConfig) -> list[EvaluationCell]:
    modes = ["greedy"] * config.evaluation.greedy + ["sampled"] * (config.evaluation.samples_per_problem > 0)
    return [EvaluationCell(directory, set_name, calls, mode) for mode in modes]


def _missing(cell: EvaluationCell, problems: EncodedPrompts, config: EvaluateModelConfig) -> tuple[Prompt, ...]:
    """Return the prompts of a cell without complete groups."""
    done = cell.file.drop_incomplete(_samples(cell, config))
    return tuple(prompt for prompt in problems.prompts if prompt.problem.id not in done)


def _samples(cell: EvaluationCell, config: EvaluateModelConfig) -> int:
    return 1 if cell.mode == "greedy" else config.evaluation.samples_per_problem
