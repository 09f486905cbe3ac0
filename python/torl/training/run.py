"""A training run from its configuration to its summary."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torl.config import ProblemChoice, TrainConfig
from torl.errors import ActorDiedError, DataError, EngineDiedError, LearnerDiedError, TorlError, WeightTransferError
from torl.hub import pinned_dataset, pinned_model
from torl.records.run_directory import open_run_directory
from torl.report.console import Console
from torl.report.summary import write_summary
from torl.runtime.cluster import Cluster, open_cluster
from torl.runtime.processes.children import first_line
from torl.runtime.processes.loop_watchdog import watch_event_loop
from torl.runtime.processes.supervision import first_error, run_with_watchers
from torl.training.experience import Experience
from torl.training.hang import HangRecorder
from torl.training.loop import Run
from torl.training.parts import open_run_components
from torl.training.residency import DeviceSharing, Residency

_LOST = (LearnerDiedError, ActorDiedError, WeightTransferError, EngineDiedError)
"""What a run on a cluster ends with when it loses a node that it cannot do without: the learner's, or any while weights
are sent. An engine that dies while it samples ends no run."""


async def train(config: TrainConfig, console: Console) -> dict[str, Any]:
    """Run `config` to its last step; returns the summary. What comes from the hub is recorded with its commit.

    Raises:
        TorlError: what was wrong with the configuration, the data or a part; everything written so far is kept.

    On a cluster, a run that loses its learner with a node goes on from its last checkpoint, as often as it may.
    """
    config = _pinned(config)
    directory = open_run_directory(config)
    restarts, apart = 0, False
    while True:
        try:
            async with open_cluster(config.cluster) as cluster:
                apart = cluster.is_remote
                await _attempt(config, directory, console, cluster)
            break
        except (TorlError, ExceptionGroup) as group:
            error = first_error(group)
            if not apart or not isinstance(error, _LOST) or restarts == config.cluster.max_restarts:
                raise
            restarts += 1
            console.warning(
                f"{first_line(error).rstrip(':')}: the run goes on from its last checkpoint "
                f"(restart {restarts} of {config.cluster.max_restarts}, cluster.max_restarts)"
            )
            config = config.model_copy(update={"run": config.run.model_copy(update={"resume": True})})
    summary = write_summary(directory)
    console.line(f"report: {summary['report']}")
    return summary


async def _attempt(config: TrainConfig, directory: Path, console: Console, cluster: Cluster) -> None:
    """The run from where it is to its end."""
    stall_timeout_seconds = config.rollout.stall_timeout_seconds
    async with open_run_components(config, directory, console, cluster) as parts:
        experience = Experience(config, parts.sampler, parts.player, parts.rollouts.reward, console)
        residency = Residency(
            parts.player.engine,
            parts.learner,
            DeviceSharing(
                colocated=parts.colocated,
                engine_sleeps=bool(getattr(parts.config.engine.options, "sleep_while_learning", False)),
                learner_offloads=bool(parts.config.learner.offload_while_sampling),
            ),
            policy_version=parts.first_step,
            checksum=parts.config.learner.verify_weights,
        )
        run = Run(parts, experience, residency)
        if parts.checkpoint is not None:
            async with residency.lend_learner() as loan:
                await loan.publish(parts.first_step)
        watchers = (*parts.rollouts.watchers(stall_timeout_seconds), residency.resend_weights(), parts.learner.watch())
        log = directory / "logs" / "controller.log"
        hang = HangRecorder(parts, log)
        async with watch_event_loop(log, stall_timeout_seconds, "rollout.stall_timeout_seconds"):
            await run_with_watchers(hang.dump_stacks_on_hang(run.train()), *map(hang.dump_stacks_on_hang, watchers))


def _pinned(config: TrainConfig) -> TrainConfig:
    """With the commits that the names of the hub stand for now.

    Raises:
        DataError: some cannot be had; says of each what to download.
    """
    missing: list[str] = []

    def pinned(pin: Callable[[str], str], path: str) -> str:
        try:
            return pin(path)
        except DataError as error:
            missing.append(str(error))
            return path

    def problems(chosen: ProblemChoice) -> ProblemChoice:
        path = getattr(chosen.options, "path", None)
        if path is None:
            return chosen
        options = chosen.options.model_copy(update={"path": pinned(pinned_dataset, str(path))})
        return replace(chosen, options=options)

    model = config.model.model_copy(update={"path": pinned(pinned_model, config.model.path)})
    evaluation = {name: problems(chosen) for name, chosen in config.data.evaluation.items()}
    data = config.data.model_copy(update={"train": problems(config.data.train), "evaluation": evaluation})
    if missing:
        raise DataError("\n".join(missing))
    return config.model_copy(update={"model": model, "data": data})
