"""A trial of a run before it starts: the untrained model's learning signal, and the gap of engine and learner."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.runtime.cluster import open_cluster
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.base.runtime.processes.supervision import run_with_watchers
from torl.base.types import Float32Array, ScoredGroup
from torl.rollout.group_file import play_to_file
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.records.signal import LearningSignal
from torl.training.components import RunComponents, open_run_components
from torl.training.hub_commits import pin_commits
from torl.training.probe import logprob_gaps
from torl.training.samples import training_samples

_BATCH = "trial"  # of its episodes, from which their seeds are derived
_COMPARED = 32  # responses whose log-probabilities the learner computes


async def try_run(config: TrainConfig, console: Console, *, problems: int, samples: int) -> dict[str, Any]:
    """Start the components of a run, sample and grade groups, print what they offer to learn from, and return it.

    Nothing is trained, and no file is kept.

    Args:
        config: Configuration of the run.
        console: Console for progress and the verdict.
        problems: Number of problems, the first of the run's order; at most as many as there are.
        samples: Number of responses per problem.

    Returns:
        The attributes of `LearningSignal`, `logprob_gap_mean` and `logprob_gap_max`, in nats, and `findings`.

    Raises:
        TorlError: The configuration, the data or a component failed, as it would in the run.
    """
    with ScratchDirectory("torl-try-") as directory:
        config = pin_commits(_only_training(config, directory))
        async with open_cluster(config.cluster) as cluster, AsyncExitStack() as stack:
            if cluster.is_remote:
                raise ConfigError("torl try runs on one machine: try the run on one node, without the section cluster")
            opening = open_run_components(config, directory, console, cluster)
            components = await stack.enter_async_context(opening)
            watchers = components.rollouts.watchers(config.rollout.stall_timeout_seconds)
            work = _measure(components, console, problems, samples)
            return await run_with_watchers(work, *watchers, components.learner.watch())


def _only_training(config: TrainConfig, directory: Path) -> TrainConfig:
    """Return the configuration without evaluations, which a trial does not make, and with no files to keep."""
    run = config.run.model_copy(update={"directory": directory, "trackers": {}, "resume": False})
    data = config.data.model_copy(update={"evaluation": {}})
    checkpoint = config.checkpoint.model_copy(update={"keep_best": None})
    return config.model_copy(update={"run": run, "data": data, "checkpoint": checkpoint})


async def _measure(
    components: RunComponents[TrainConfig], console: Console, problems: int, samples: int
) -> dict[str, Any]:
    groups = await _play(components, console, problems, samples)
    signal = LearningSignal.measure(groups, components.config.reward_comparison)
    for line in signal.lines():
        console.line(line)
    gaps = await _gaps(components, groups)
    if len(gaps):
        console.line(f"engine and learner differ by {gaps.mean():.2g} nats on average, by {gaps.max():.2g} at most")
    found = {"logprob_gap_mean": float(gaps.mean()), "logprob_gap_max": float(gaps.max())} if len(gaps) else {}
    return asdict(signal) | found | {"findings": signal.findings()}


async def _play(
    components: RunComponents[TrainConfig], console: Console, problems: int, samples: int
) -> list[ScoredGroup]:
    """Play and grade groups. Groups with an episode that failed are left out with a warning.

    Raises:
        ToolUnavailableError: A tool or environment failed in every group, so that an episode has no end.
    """
    prompts = components.inputs.sampler.take(min(problems, len(components.inputs.sampler)))
    groups = list[ScoredGroup]()
    name = "sampling the untrained model"
    try:
        await play_to_file(components.rollouts, prompts, groups, console, name=name, batch_id=_BATCH, samples=samples)
    except ToolUnavailableError as error:
        if not groups:
            raise
        lost = len(prompts) - len(groups)
        console.warning(f"{lost} of {len(prompts)} groups have a failed episode and are left out: {error.__cause__}")
    return groups


async def _gaps(components: RunComponents[TrainConfig], groups: list[ScoredGroup]) -> Float32Array:
    """Return |learner logprob - engine logprob| of the sampled tokens of the first responses."""
    members = [member for group in groups for member in group.members][:_COMPARED]
    samples = await asyncio.to_thread(training_samples, members)
    async with components.residency().lend_learner() as loan:
        return await logprob_gaps(loan.learner, samples, step=0)
