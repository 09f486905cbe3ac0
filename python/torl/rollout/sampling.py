"""Sampling of trajectories into a file, which a killed command resumes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from torl.base.runtime.processes.resources import ScratchDirectory
from torl.base.runtime.processes.supervision import run_with_watchers
from torl.base.types import ScoredGroup
from torl.rollout.episode import EpisodePlayer
from torl.rollout.group_file import GroupFile, play_to_file
from torl.rollout.model_directory import ModelDirectory, cap_to_context, report_metadata
from torl.rollout.played_output import PlayedOutput
from torl.rollout.startup import OpenRollouts, open_rollouts
from torl.run.config import SampleConfig
from torl.run.display.console import Console
from torl.run.records.dynamics import training_dynamics
from torl.run.records.files import locked_file

BATCH_ID = 0
"""Batch of the episodes of a sampling command. Its seeds equal the seeds of step 0."""


async def sample_to_file(config: SampleConfig, console: Console) -> list[ScoredGroup]:
    """Open the model, and sample with rollouts of its own (`sample_with`)."""
    model = ModelDirectory.open(config.model.path, config.rollout.tools, config.rollout.environment)
    config = cap_to_context(config, model.path, console)
    with ScratchDirectory("torl-sample-") as logs:
        open_own = partial(open_rollouts, config, model, console, log_directory=logs, seed=config.sample.seed)
        return await sample_with(open_own, model, config, console)


async def sample_and_measure(config: SampleConfig, console: Console) -> dict[str, float]:
    """Sample as `sample_to_file` does, and return the metrics of all groups."""
    return sampling_metrics(await sample_to_file(config, console))


async def sample_with(
    open_running: OpenRollouts,
    model: ModelDirectory,
    config: SampleConfig,
    console: Console,
    *,
    resumable: bool = True,
) -> list[ScoredGroup]:
    """Play the problems that the output file lacks, append each group to it as it ends, and return all groups.

    Args:
        open_running: Opens the rollouts; called only if a problem is missing.
        model: The model.
        config: The configuration, capped to the model's context.
        console: Console for progress.
        resumable: Whether the output is kept, so that its settings and its model are recorded and compared.

    Returns:
        The groups, in the order of the problems.

    Raises:
        ConfigError: The output file was made with other settings or problems, or by another model, or another command
            writes it.
        TorlError: The problems cannot be read, or a component fails; the file keeps all finished groups.
    """
    sample = config.sample
    stream = model.prompts(sample.problems, config.data)
    prompts = tuple(islice(stream, sample.max_problems))
    console.line(f"problems: {stream}")
    report_metadata("problems", stream.fields, console)
    output = GroupFile(sample.output)
    with locked_file(output.path, "command"):
        if resumable:
            await require_same_origin(config, model, console)
        done = output.drop_incomplete(sample.samples_per_problem)
        PlayedOutput(output.path, bool(done)).require_problems((prompt.problem for prompt in prompts), done)
        remaining = [prompt for prompt in prompts if prompt.problem.id not in done]
        if done:
            console.line(f"{len(prompts) - len(remaining)} problems are in the file already")
        if remaining:
            async with open_running() as rollouts:
                playing = play_to_file(
                    rollouts,
                    remaining,
                    output,
                    console,
                    name="episodes",
                    batch_id=BATCH_ID,
                    samples=sample.samples_per_problem,
                    player=with_seed(rollouts.player, sample.seed),
                )
                await run_with_watchers(playing, *rollouts.watchers(config.rollout.stall_timeout_seconds))
        return output.read(prompts)


def with_seed(player: EpisodePlayer, seed: int) -> EpisodePlayer:
    """Return the player with another seed for its episodes."""
    return replace(player, seed=seed)


def sampling_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return the number of trajectories and their training dynamics."""
    dynamics = training_dynamics(groups) if groups else {}
    return {"trajectories": sum(len(group.members) for group in groups), **dynamics}


async def require_same_origin(config: SampleConfig, model: ModelDirectory, console: Console) -> None:
    """Record the settings and the model next to the output, or compare them with its records.

    Raises:
        ConfigError: The output was made with other settings or by another model.
        RecordError: A file cannot be read or written.
    """
    path = config.sample.output
    output = PlayedOutput(path, path.exists())
    output.require(path.with_name(f"{path.name}.toml"), str(config), "settings")
    with console.progress("comparing the model's files"):
        await asyncio.to_thread(output.require_model, path.with_name(f"{path.name}.model.json"), model.path)
