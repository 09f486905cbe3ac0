"""A training run from its configuration to its summary."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torl.config import ProblemChoice, TrainConfig
from torl.config.schedule import with_value
from torl.data.public_sets import pinned_problems
from torl.engine import EngineOptions
from torl.errors import ActorDiedError, DataError, EngineDiedError, LearnerDiedError, TorlError, WeightTransferError
from torl.hub import is_local, pinned_model, require_trainable, resolve_model_config
from torl.records.metric_names import LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE
from torl.records.reading import read_metrics
from torl.records.run_directory import open_run_directory
from torl.report.console import Console
from torl.report.summary import write_summary
from torl.rollout.evaluation_sets import split_by_source
from torl.runtime.cluster import Cluster, open_cluster
from torl.runtime.processes.children import first_line
from torl.runtime.processes.supervision import first_error, run_with_watchers
from torl.runtime.processes.watchdogs import watch_event_loop
from torl.training.components import open_run_components
from torl.training.experience import Experience
from torl.training.health import HangRecorder, PolicyComparison
from torl.training.loop import Run
from torl.training.probe import TransferProbe
from torl.training.residency import DeviceSharing, Residency

_NODE_LOSSES = (LearnerDiedError, ActorDiedError, WeightTransferError, EngineDiedError)
"""Errors of a run that loses an essential node: a learner node, or any node during a weight transfer. The loss of an
engine that samples does not stop a run."""


async def train(config: TrainConfig, console: Console) -> dict[str, Any]:
    """Run `config` to its last step and return the summary. Models and datasets of the Hub are pinned to a commit.

    On a cluster, a run that loses learner ranks with their node restarts from its latest checkpoint, at most
    `cluster.max_restarts` times.

    Raises:
        TorlError: The configuration, the data or a component failed. All records written so far are kept.
    """
    config = _pin_commits(config)
    with open_run_directory(config) as directory:
        await _run_with_restarts(config, directory, console)
        summary = write_summary(directory)
        console.line(f"report: {summary['report']}")
        return summary


async def _run_with_restarts(config: TrainConfig, directory: Path, console: Console) -> None:
    restarts, is_remote = 0, False
    while True:
        try:
            async with open_cluster(config.cluster) as cluster:
                is_remote = cluster.is_remote
                await _attempt(config, directory, console, cluster)
            return
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


async def _attempt(config: TrainConfig, directory: Path, console: Console, cluster: Cluster) -> None:
    """Run from the first step, or from the latest checkpoint, to the last step."""
    timeout_seconds = config.rollout.stall_timeout_seconds
    async with open_run_components(config, directory, console, cluster) as components:
        player, learner = components.player, components.learner
        experience = Experience(config, components.sampler, player, components.rollouts.reward, console)
        options = components.config.engine.options
        residency = Residency(
            player.engine,
            learner,
            DeviceSharing(
                colocated=components.colocated,
                engine_sleeps=isinstance(options, EngineOptions) and bool(options.sleep_while_learning),
                learner_offloads=bool(components.config.learner.offload_while_sampling),
            ),
            policy_version=components.first_step,
            checksum=components.config.learner.verify_weights,
        )
        resumed = read_metrics(directory) if components.first_step > 0 else []
        gaps = (LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE)
        first_gaps = {name: row[name] for row in reversed(resumed) for name in gaps if name in row}
        comparison = PolicyComparison(components.config, on_gpus=components.on_gpus, first_gaps=first_gaps)
        probe = TransferProbe(components.config, player.engine)
        run = Run(components, experience, residency, comparison, probe)
        if components.checkpoint is not None:
            async with residency.lend_learner() as loan:
                await loan.publish(components.first_step)
        watchers = (*components.rollouts.watchers(timeout_seconds), residency.resend_weights(), learner.watch())
        log = directory / "logs" / "controller.log"
        hang = HangRecorder(components, log)
        async with probe, watch_event_loop(log, timeout_seconds, "rollout.stall_timeout_seconds"):
            await run_with_watchers(hang.dump_stacks_on_hang(run.train()), *map(hang.dump_stacks_on_hang, watchers))


def _pin_commits(config: TrainConfig) -> TrainConfig:
    """Replace names of models and datasets on the Hub by names with their commit, and evaluation files by their sets.

    Raises:
        DataError: A model or a dataset is unavailable, or the model cannot be trained. The message lists the downloads
            that provide them.
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
        options = chosen.options.model_copy(update={"path": pinned(pinned_problems, str(path))})
        return replace(chosen, options=options)

    def trainable_model(path: str) -> str:
        if not is_local(path):
            require_trainable(resolve_model_config(path))  # before the weights are downloaded
        return pinned_model(path)

    model = config.model.model_copy(update={"path": pinned(trainable_model, config.model.path)})
    if (teacher := config.algorithm.kl.path) is not None:
        config = with_value(config, ("algorithm", "kl", "path"), pinned(pinned_model, teacher))
    evaluation = {name: problems(chosen) for name, chosen in config.data.evaluation.items()}
    data = config.data.model_copy(update={"train": problems(config.data.train), "evaluation": evaluation})
    if missing:
        raise DataError("\n".join(missing))
    data = data.model_copy(update={"evaluation": split_by_source(data.evaluation)})
    return config.model_copy(update={"model": model, "data": data})
