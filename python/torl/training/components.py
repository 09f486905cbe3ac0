"""The components of a run, and those of reinforcement learning: validate all inputs, then start everything."""

import os
import platform
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic

from torl.base.errors import ConfigError
from torl.base.runtime.cluster import Cluster
from torl.base.version import __version__
from torl.components.data import Sampler
from torl.components.engine import Engine, EngineOptions
from torl.components.hub import require_trainable, resolve_model
from torl.components.text.prompts import EncodedPrompts
from torl.learner.learner import Learner
from torl.rollout.episode import EpisodePlayer
from torl.rollout.evaluation import set_errors
from torl.rollout.model_directory import (
    ModelDirectory,
    report_metadata,
    require_fitting,
    require_same_vocabulary,
)
from torl.rollout.startup import Components, Rollouts
from torl.run.config import LearningConfig, TrainConfig
from torl.run.display.console import Console
from torl.run.records import metric_names as names
from torl.run.records.run_directory import changed_keys, config_files, setting_of
from torl.run.records.writers import RunWriter
from torl.training.checkpoints import Checkpoints, require_evaluation_metric
from torl.training.residency import DeviceSharing, Residency
from torl.training.startup import Config, RunInputs, prepare_inputs, start_sides
from torl.training.step_problems import read_ahead


@dataclass(slots=True)
class RunComponents(Generic[Config]):
    """The started components of a run.

    Attributes:
        inputs: Inputs of the run.
        directory: Directory of the run.
        console: Console for progress and warnings.
        playing: Player of episodes and reward. None for a run without episodes.
        learner: Learner.
        writer: Writer of metrics and trajectories.
        checkpoints: Checkpoints of the run.
    """

    inputs: RunInputs[Config]
    directory: Path
    console: Console
    playing: Rollouts | None
    learner: Learner
    writer: RunWriter
    checkpoints: Checkpoints
    _idle_seconds: float = field(default=0.0, init=False)

    @property
    def config(self) -> Config:
        """Resolved configuration."""
        return self.inputs.resolved.config

    @property
    def rollouts(self) -> Rollouts:
        """Player of episodes and reward, of a run with episodes."""
        assert self.playing is not None, "the run has no episodes"
        return self.playing

    @property
    def player(self) -> EpisodePlayer:
        """Player of the episodes."""
        return self.rollouts.player

    def residency(self) -> Residency:
        """Return the owner of the devices' memory, with the engine awake."""
        options = self.config.engine.options
        sharing = DeviceSharing(
            colocated=self.inputs.resolved.placement.colocated,
            engine_sleeps=isinstance(options, EngineOptions) and bool(options.sleep_while_learning),
            learner_offloads=bool(self.config.learner.offloads_while_sampling),
        )
        return Residency(
            self.player.engine,
            self.learner,
            sharing,
            policy_version=self.inputs.first_step,
            checksum=self.config.learner.verify_weights,
        )

    def counters(self) -> dict[str, float]:
        """Return the counters of all components as metrics."""
        player, idle = self.player, self.player.engine.idle_seconds
        metrics = {names.TIME_ENGINE_IDLE: idle - self._idle_seconds}
        self._idle_seconds = idle
        return metrics | player.metrics() | names.reward_count.row(self.rollouts.reward.metrics())


@asynccontextmanager
async def open_run_components(
    config: TrainConfig, directory: Path, console: Console, cluster: Cluster
) -> AsyncIterator[RunComponents[TrainConfig]]:
    """Validate all inputs, then start the components on a cluster; they are closed at the end of the block.

    Raises:
        TorlError: The configuration, the data or a checkpoint is invalid, or a component does not start.
    """
    inputs = await _read_inputs(config, directory, console, cluster)
    components = replace(
        Components.from_config(inputs.resolved.config), shuffle_observations=config.ablation.shuffle == "observations"
    )
    async with start_components(config, inputs, components, directory, console, cluster) as started:
        yield started


@asynccontextmanager
async def start_components(
    config: Config,
    inputs: RunInputs[Config],
    components: Components | None,
    directory: Path,
    console: Console,
    cluster: Cluster,
) -> AsyncIterator[RunComponents[Config]]:
    """Write the configuration and start the components of a run; they are closed at the end of the block.

    Args:
        config: Configuration of the user.
        inputs: Validated inputs.
        components: Components of the rollouts. None for a run without episodes.
        directory: Directory of the run.
        console: Console for progress and warnings.
        cluster: Cluster of the run.

    Raises:
        TorlError: A component does not start.
    """
    for change in changed_keys(directory, config):
        console.line(str(change))
    async with AsyncExitStack() as stack:
        resume_step = inputs.first_step if config.run.resume else None
        trackers = [choice.make(directory, resume_step) for choice in config.run.trackers.values()]
        writer = stack.enter_context(
            RunWriter(
                directory,
                resume_step=resume_step,
                trackers=trackers,
                warn=console.warning,
                facts={**start_facts(inputs.resolved.config), "sources": _sources_of(config, inputs)},
                configs=config_files(directory, config, inputs.first_step),
            )
        )
        starting = start_sides(inputs, components, directory / "logs", console, cluster)
        rollouts, learner = await stack.enter_async_context(starting)
        checkpoints = Checkpoints(config.checkpoint, directory, learner)
        if inputs.checkpoint is not None:
            checkpoints.load_history(inputs.first_step)
        yield RunComponents(inputs, directory, console, rollouts, learner, writer, checkpoints)


def start_facts(config: LearningConfig) -> dict[str, Any]:
    """Return what a start adds to the receipt of a run: versions, and the threads that the learner's sums depend on."""
    threads = config.learner.cpu_threads or max(1, len(os.sched_getaffinity(0)) // (config.learner.ranks or 1))
    found = {}
    engine = config.engine.target
    for package in (
        "torch",
        "transformers",
        "deepspeed",
        *(engine.packages() if isinstance(engine, type) and issubclass(engine, Engine) else ()),
    ):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return {"torl": __version__, "python": platform.python_version(), "packages": found, "learner_threads": threads}


def _sources_of(config: LearningConfig, inputs: RunInputs[Config]) -> dict[str, Any]:
    """Return the hash of the rows of each source (`SourceDigest.entry`), with the setting that names it."""
    evaluations = {f"data.evaluation.{name}": each.source for name, each in inputs.evaluation_sets.items()}
    found = {**inputs.sources, **evaluations}
    return {name: {**entry, "setting": setting_of(config, name)} for name, entry in found.items()}


async def _read_inputs(
    config: TrainConfig, directory: Path, console: Console, cluster: Cluster
) -> RunInputs[TrainConfig]:
    """Read the model, the problems and the checkpoint, and place the run."""
    model = open_model(config)
    if warning := config.algorithm.unpublished_aggregation:
        console.warning(warning)
    if config.algorithm.needs_reference and config.algorithm.kl.path is not None:
        require_same_vocabulary(model, config.algorithm.kl.path, "algorithm.kl.reference")
    if config.algorithm.needs_critic and config.critic.path is not None:
        require_trainable(resolve_model(config.critic.path), "critic.path")
        require_same_vocabulary(model, config.critic.path, "critic.path")
    prompts = model.prompts(config.data.train, config.data)
    sampler: Sampler = config.data.sampler.make(prompts, config.run.seed)
    console.line(f"train: {prompts}")
    report_metadata("train", prompts.fields, console)
    if config.rollout.prompts_per_step > len(sampler):
        raise ConfigError(
            f"rollout.prompts_per_step is {config.rollout.prompts_per_step}, but data.train has "
            f"{len(sampler)} problems that can be sampled at the same time"
        )
    evaluation_sets = read_evaluation_sets(config, model, console)
    inputs = await prepare_inputs(config, model, sampler, evaluation_sets, directory, console, cluster)
    ahead = () if inputs.checkpoint is None else read_ahead(inputs.checkpoint, prompts)
    return replace(inputs, encode=prompts.encode, ahead=ahead, sources={"data.train": prompts.source.entry()})


def open_model(config: LearningConfig) -> ModelDirectory:
    """Open the model of a run, and check that it can be trained as configured.

    Raises:
        TorlError: The model is missing or cannot be trained, or settings do not fit it.
    """
    require_evaluation_metric(config)
    path = resolve_model(config.model.path)
    require_fitting(config, path)
    require_trainable(path)  # imports transformers, which takes seconds
    return ModelDirectory.open(str(path), config.rollout.tools, config.rollout.environment)


def read_evaluation_sets(config: LearningConfig, model: ModelDirectory, console: Console) -> dict[str, EncodedPrompts]:
    """Read the evaluation sets of a run, by name.

    Raises:
        DataError: The problems of a set cannot be read, or all of its prompts are too long. The message begins with its
            name.
    """
    sets: dict[str, EncodedPrompts] = {}
    for name, problems in config.data.evaluation.items():
        with set_errors(name):
            sets[name] = model.problem_set(name, problems, config.data, config.evaluation, console)
    return sets
