"""A run in its directory, from its configuration to its summary, with restarts after the loss of a node."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from torl.base.errors import ActorDiedError, EngineDiedError, LearnerDiedError, TorlError, WeightTransferError
from torl.base.runtime.cluster import Cluster, open_cluster
from torl.base.runtime.processes.children import first_line
from torl.base.runtime.processes.hangs import watch_event_loop
from torl.base.runtime.processes.supervision import first_error, run_with_watchers
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.display.outcome import describe_outcome, write_summary
from torl.run.records.metric_names import LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE
from torl.run.records.reading import read_metrics
from torl.run.records.receipt import end_receipt
from torl.run.records.run_directory import open_run_directory
from torl.training.components import open_run_components
from torl.training.experience import Experience
from torl.training.health import HangRecorder, PolicyComparison
from torl.training.hub_commits import pin_commits
from torl.training.loop import Run
from torl.training.milestones import Milestones
from torl.training.monitor import Monitors
from torl.training.probe import TransferProbe
from torl.training.startup import Config

_NODE_LOSSES = (LearnerDiedError, ActorDiedError, WeightTransferError, EngineDiedError)
"""Errors of a run that loses an essential node: a learner node, or any node during a weight transfer. The loss of an
engine that samples does not stop a run."""


Attempt: TypeAlias = Callable[[Config, Path, Console, Cluster, Monitors], Awaitable[int]]
"""Runs from the first step, or from the latest checkpoint, to the last step, and returns the number of steps."""


async def run_recorded(config: Config, console: Console, attempt: Attempt[Config]) -> dict[str, Any]:
    """Run `config` to its last step and return the summary. Models and datasets of the Hub are pinned to a commit.

    On a cluster, a run that loses learner ranks with their node restarts from its latest checkpoint, at most
    `cluster.max_restarts` times.

    Args:
        config: Configuration of the run.
        console: Console for progress and warnings.
        attempt: Function that runs the steps.

    Raises:
        TorlError: The configuration, the data or a component failed. All records written so far are kept.
    """
    monitors = Monitors.installed(config)
    config = pin_commits(config)
    with open_run_directory(config) as directory:
        steps = await _run_with_restarts(config, directory, console, attempt, monitors)
        summary = write_summary(directory)
        receipt = end_receipt(directory, steps)
        for line in describe_outcome(directory):
            console.line(line)
        console.line(f"report: {summary['report']}")
        if receipt is not None:
            console.line(f"receipt: {receipt}")
        return summary


async def _run_with_restarts(
    config: Config, directory: Path, console: Console, attempt: Attempt[Config], monitors: Monitors
) -> int:
    restarts, is_remote = 0, False
    while True:
        try:
            async with open_cluster(config.cluster) as cluster:
                is_remote = cluster.is_remote
                return await attempt(config, directory, console, cluster, monitors)
        except (TorlError, ExceptionGroup) as group:
            error = first_error(group)
            if not is_remote or not isinstance(error, _NODE_LOSSES) or restarts == config.cluster.max_restarts:
                raise
            restarts += 1
            console.warning(
                f"{first_line(error).rstrip(':')}: the run continues from its last checkpoint "
                f"(restart {restarts} of {config.cluster.max_restarts}, cluster.max_restarts)"
            )
            config = config.model_copy(update={"run": config.run.model_copy(update={"resume": True})})


async def train(config: TrainConfig, console: Console) -> dict[str, Any]:
    """Run `config` to its last step and return the summary (`run_recorded`).

    Args:
        config: Configuration of the run.
        console: Console for progress and warnings.

    Raises:
        TorlError: The configuration, the data or a component failed, or a monitor ended the run. All records written
            so far are kept.
    """
    return await run_recorded(config, console, _run_to_end)


async def _run_to_end(
    config: TrainConfig, directory: Path, console: Console, cluster: Cluster, monitors: Monitors
) -> int:
    """Run from the first step, or from the latest checkpoint, to the last step, and return the number of steps."""
    await _run(config, directory, console, cluster, Run.train, monitors)
    return config.total_steps


async def run_steps(config: TrainConfig, directory: Path, console: Console, cluster: Cluster, stop: int) -> None:
    """Run from the first step, or from the latest checkpoint, to step `stop - 1`, and write a checkpoint.

    The schedules of the run, which may depend on the number of its steps, are unchanged.
    """

    async def work(run: Run) -> None:
        await run.take_steps(stop)
        await run.save(stop)

    await _run(config, directory, console, cluster, work, Monitors())


async def _run(
    config: TrainConfig,
    directory: Path,
    console: Console,
    cluster: Cluster,
    work: Callable[[Run], Coroutine[Any, Any, None]],
    monitors: Monitors,
) -> None:
    timeout_seconds = config.rollout.stall_timeout_seconds
    async with open_run_components(config, directory, console, cluster) as components:
        player, learner = components.player, components.learner
        reward, ahead = components.rollouts.reward, components.inputs.ahead
        experience = Experience(config, components.inputs.sampler, player, reward, console, ahead)
        residency = components.residency()
        resumed = read_metrics(directory) if components.inputs.first_step > 0 else []
        gaps: tuple[str, ...] = (LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE)
        first_gaps = {name: row[name] for row in reversed(resumed) for name in gaps if name in row}
        on_gpus = bool(components.inputs.resolved.placement.machine.gpus)
        comparison = PolicyComparison(components.config, on_gpus=on_gpus, first_gaps=first_gaps)
        probe = TransferProbe(components.config, player.engine)
        await asyncio.to_thread(monitors.open, components.config, directory, components.inputs.first_step)
        run = Run(components, experience, residency, comparison, probe, Milestones(components, monitors), monitors)
        if components.inputs.checkpoint is not None:
            async with residency.lend_learner() as loan:
                await loan.publish(components.inputs.first_step)
        watchers = (*components.rollouts.watchers(timeout_seconds), residency.resend_weights(), learner.watch())
        log = directory / "logs" / "controller.log"
        hang = HangRecorder(components, log)
        async with probe, watch_event_loop(log, timeout_seconds, "rollout.stall_timeout_seconds"):
            await run_with_watchers(hang.dump_stacks_on_hang(work(run)), *map(hang.dump_stacks_on_hang, watchers))
