"""Problems in, trajectories out: sampling into a file that a killed command resumes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torl.config import SampleConfig
from torl.config.command_line import dump_config
from torl.errors import ConfigError
from torl.processes.supervision import watched
from torl.records.dynamics import training_dynamics
from torl.records.files import append_whole, replacing
from torl.records.reading import read_trajectories
from torl.records.rows import encode_row, encode_trajectory, group_records
from torl.report.console import Console
from torl.rollout.grading import score_group
from torl.rollout.opening import ModelDirectory, Rollouts, open_rollouts, within_context
from torl.rollout.scheduler import play_groups
from torl.types import Prompt, Scored, ScoredGroup

SERIES = 0
"""What the episodes of a sampling command belong to: its records and seeds are those of step 0."""


async def sample_to_file(config: SampleConfig, console: Console) -> list[ScoredGroup]:
    """Play what the output file does not hold yet, add each group to it as it ends; return all, in the problems' order.

    Raises:
        ConfigError: the output file was made with other settings.
        TorlError: something else is not as it should be; what was written is kept.
    """
    sample = config.sample
    model = ModelDirectory.open(config.model.path)
    config = within_context(config, model.path)
    prompts = model.prompts("problems", sample.problems, config.data, console)[: sample.max_problems]
    _check_settings(config)
    done = _whole_groups(sample.output, sample.samples)
    waiting = [prompt for prompt in prompts if prompt.problem.id not in done]
    if done:
        console.line(f"{len(prompts) - len(waiting)} problems were done before")
    if waiting:
        with TemporaryDirectory(prefix="torl-sample-") as logs:
            parts = open_rollouts(config, model, console, log_directory=Path(logs), seed=sample.seed)
            async with parts as rollouts:
                await watched(_play(config, rollouts, waiting, console), rollouts.player.engine.watch())
    return _read(sample.output, prompts)


def sampling_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """How many trajectories there are, and their dynamics."""
    dynamics = training_dynamics(groups) if groups else {}
    return {"trajectories": sum(len(group.members) for group in groups), **dynamics}


async def _play(config: SampleConfig, rollouts: Rollouts, prompts: Sequence[Prompt], console: Console) -> None:
    samples = config.sample.samples
    with console.wait("episodes", len(prompts) * samples) as wait:
        groups = play_groups(
            rollouts.player, prompts, series=SERIES, samples_per_prompt=samples, on_episode=wait.advance
        )
        async with aclosing(groups):
            async for group in groups:
                scored = await score_group(rollouts.reward, group)
                await asyncio.to_thread(_append, config.sample.output, scored)


def _check_settings(config: SampleConfig) -> None:
    """Write the settings beside the output; refuse to resume an output of other settings."""
    path = config.sample.output.with_name(f"{config.sample.output.name}.toml")
    settings = dump_config(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if config.sample.output.exists() and path.exists() and path.read_text(encoding="utf-8") != settings:
            raise ConfigError(f"{config.sample.output} was made with other settings (see {path.name}): choose another")
        path.write_text(settings, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def _whole_groups(output: Path, samples: int) -> set[str]:
    """The problems whose groups are whole in the file; what a kill left of others is taken out of it."""
    if not output.exists():
        return set()
    records = list(read_trajectories(output))
    counts = Counter(record.trajectory.prompt.problem.id for record in records)
    whole = {problem for problem, count in counts.items() if count == samples}
    with replacing(output) as file:
        for record in records:
            if record.trajectory.prompt.problem.id in whole:
                file.write(encode_row(encode_trajectory(record)))
    return whole


def _append(output: Path, group: ScoredGroup) -> None:
    records = group_records(SERIES, [group])
    append_whole(output, b"".join(encode_row(encode_trajectory(record)) for record in records))


def _read(output: Path, prompts: Sequence[Prompt]) -> list[ScoredGroup]:
    """The groups of these prompts that are in the file, in their order, with the problems' metadata."""
    members: dict[str, list[Scored]] = {prompt.problem.id: [] for prompt in prompts}
    by_problem = {prompt.problem.id: prompt for prompt in prompts}
    for record in read_trajectories(output) if output.exists() else ():
        problem = record.trajectory.prompt.problem.id
        if problem in members:
            trajectory = replace(record.trajectory, prompt=by_problem[problem])
            members[problem].append(Scored(trajectory, record.grade, record.grade.reward))
    return [
        ScoredGroup(by_problem[problem], tuple(sorted(scored, key=lambda member: member.trajectory.sample)))
        for problem, scored in members.items()
        if scored
    ]
