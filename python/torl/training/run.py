"""A training run from its configuration to its summary."""

from typing import Any

from torl.config import TrainConfig
from torl.hub import pinned_model
from torl.processes.loop_watch import watched_loop
from torl.processes.supervision import watched
from torl.records.run_directory import open_run_directory
from torl.report.console import Console
from torl.report.summary import write_summary
from torl.training.experience import Experience
from torl.training.hang import HangRecorder
from torl.training.loop import Run
from torl.training.parts import open_parts
from torl.training.residency import Residency


async def train(config: TrainConfig, console: Console) -> dict[str, Any]:
    """Run `config` to its last step; returns the summary. A model of the hub is recorded with its commit.

    Raises:
        TorlError: what was wrong with the configuration, the data or a part; everything written so far is kept.
    """
    model = config.model.model_copy(update={"path": pinned_model(config.model.path)})
    config = config.model_copy(update={"model": model})
    directory, stall_seconds = open_run_directory(config), config.rollout.stall_seconds
    async with open_parts(config, directory, console) as parts:
        experience = Experience(config, parts.sampler, parts.player, parts.rollouts.reward, console)
        residency = Residency(
            parts.player.engine,
            parts.learner,
            colocated=parts.colocated,
            sleeps=bool(getattr(parts.config.engine.options, "sleep_while_learning", False)),
            moves=bool(parts.config.learner.offload_while_sampling),
            checksum=parts.config.learner.verify_weights,
            policy_version=parts.first_step,
        )
        run = Run(parts, experience, residency)
        if parts.checkpoint is not None:
            await residency.give_to_learner()
            await residency.publish(parts.first_step)
        watchers = (*parts.rollouts.watchers(stall_seconds), residency.keep_supplied(), parts.learner.watch())
        log = directory / "logs" / "controller.log"
        hang = HangRecorder(parts, log)
        async with watched_loop(log, stall_seconds, "rollout.stall_seconds"):
            await watched(hang.recorded(run.train()), *map(hang.recorded, watchers))
    summary = write_summary(directory)
    console.line(f"report: {summary['report']}")
    return summary
