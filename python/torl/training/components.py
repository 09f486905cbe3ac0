"""The components of a training run: validate all inputs, then start the engine, the tools and the learner."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torl.component import RunContext
from torl.config import TrainConfig
from torl.data import Sampler
from torl.errors import ConfigError
from torl.hub import require_trainable, resolve_model
from torl.learner.checkpoint.directory import latest_checkpoint, read_controller_state
from torl.learner.learner import Learner
from torl.learner.messages import LearnerSetup
from torl.placement.fit import describe_update, require_division, require_room, with_update_settings
from torl.placement.resolve import ResolvedConfig, resolve
from torl.placement.shape import ModelShape
from torl.records import metric_names as names
from torl.records.reading import find_damage
from torl.records.run_directory import write_config
from torl.records.writers import RunWriter
from torl.report.console import Console
from torl.rollout.episode import EpisodePlayer
from torl.rollout.model_directory import ModelDirectory, require_fitting, require_same_vocabulary
from torl.rollout.startup import Components, Rollouts, machine_of, start_rollouts
from torl.runtime.cluster import Cluster
from torl.text.prompts import EncodedPrompts
from torl.training.checkpoints import Checkpoints, require_evaluation_metric, require_shared_storage
from torl.types import Problem, Prompt


@dataclass(slots=True)
class RunComponents:
    """The started components of a run.

    Attributes:
        config: Resolved configuration.
        directory: Directory of the run.
        console: Console for progress and warnings.
        sampler: Source of prompts.
        encode: Function that puts a problem into the run's template and encodes it.
        evaluation_sets: Evaluation sets by name.
        rollouts: Player of episodes and reward.
        learner: Learner.
        writer: Writer of metrics and trajectories.
        checkpoint: Checkpoint that the run resumes from.
        first_step: Number of the first step.
        colocated: Whether learner and engine share devices.
        on_gpus: Whether they compute on GPUs.
        checkpoints: Checkpoints of the run.
    """

    config: TrainConfig
    directory: Path
    console: Console
    sampler: Sampler
    encode: Callable[[Problem], Prompt]
    evaluation_sets: Mapping[str, EncodedPrompts]
    rollouts: Rollouts
    learner: Learner
    writer: RunWriter
    checkpoint: Path | None
    first_step: int
    colocated: bool
    on_gpus: bool
    checkpoints: Checkpoints
    _idle_seconds: float = field(default=0.0, init=False)

    @property
    def player(self) -> EpisodePlayer:
        """Player of the episodes."""
        return self.rollouts.player

    def counters(self) -> dict[str, float]:
        """Return the counters of all components as metrics."""
        player, idle = self.player, self.player.engine.idle_seconds
        metrics = {names.EPOCH: float(self.sampler.epoch), names.TIME_ENGINE_IDLE: idle - self._idle_seconds}
        self._idle_seconds = idle
        return metrics | player.metrics() | names.reward_counts(self.rollouts.reward.metrics())


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The validated inputs of a run, before any process is started."""

    model: ModelDirectory
    sampler: Sampler
    encode: Callable[[Problem], Prompt]
    evaluation_sets: Mapping[str, EncodedPrompts]
    checkpoint: Path | None
    first_step: int
    resolved: ResolvedConfig[TrainConfig]


@asynccontextmanager
async def open_run_components(
    config: TrainConfig, directory: Path, console: Console, cluster: Cluster
) -> AsyncIterator[RunComponents]:
    """Validate all inputs, then start the components on a cluster; they are closed at the end of the block.

    Raises:
        TorlError: The configuration, the data or a checkpoint is invalid, or a component does not start.
    """
    inputs = await _read_inputs(config, directory, console, cluster)
    components = replace(
        Components.from_config(inputs.resolved.config), shuffle_observations=config.ablation.shuffle_observations
    )
    for line in write_config(directory, config, inputs.first_step):
        console.line(line)
    async with AsyncExitStack() as stack:
        resume_step = inputs.first_step if config.run.resume else None
        trackers = [choice.make(directory, resume_step) for choice in config.run.trackers.values()]
        writer = stack.enter_context(RunWriter(directory, resume_step=resume_step, trackers=trackers))
        rollouts, learner = await _start(stack, inputs, components, directory / "logs", console, cluster)
        checkpoints = Checkpoints(config.checkpoint, directory, learner)
        if inputs.checkpoint is not None:
            checkpoints.load_history(inputs.first_step)
        yield RunComponents(
            config=inputs.resolved.config,
            directory=directory,
            console=console,
            sampler=inputs.sampler,
            encode=inputs.encode,
            evaluation_sets=inputs.evaluation_sets,
            rollouts=rollouts,
            learner=learner,
            writer=writer,
            checkpoint=inputs.checkpoint,
            first_step=inputs.first_step,
            colocated=inputs.resolved.placement.colocated,
            on_gpus=bool(inputs.resolved.placement.machine.gpus),
            checkpoints=checkpoints,
        )


async def _read_inputs(config: TrainConfig, directory: Path, console: Console, cluster: Cluster) -> _Inputs:
    """Read the model, the problems and the checkpoint, and place the run."""
    require_evaluation_metric(config)
    model_path = resolve_model(config.model.path)
    require_fitting(config, model_path)
    require_trainable(model_path)  # imports transformers, which takes seconds
    model = ModelDirectory.open(str(model_path), config.rollout.tools, config.rollout.environment)
    if config.algorithm.needs_reference and config.algorithm.kl.path is not None:
        require_same_vocabulary(model, config.algorithm.kl.path, "algorithm.kl.path")
    prompts = model.prompts(config.data.train, config.data)
    sampler: Sampler = config.data.sampler.make(prompts, config.run.seed)
    console.line(f"train: {prompts}")
    if config.rollout.prompts_per_step > len(sampler):
        raise ConfigError(
            f"rollout.prompts_per_step is {config.rollout.prompts_per_step}, but data.train has "
            f"{len(sampler)} problems that can be sampled at the same time"
        )
    evaluation_sets = {
        name: model.problem_set(name, problems, config.data, config.evaluation, console)
        for name, problems in config.data.evaluation.items()
    }
    checkpoint = latest_checkpoint(directory) if config.run.resume else None
    first_step = _resume(config, sampler, checkpoint, console) if config.run.resume else 0
    resolved = resolve(config, await machine_of(cluster))
    console.line(f"placement: {resolved.placement}")
    if cluster.is_remote:
        await require_shared_storage(cluster, directory, resolved.placement.rank_nodes)
    resolved = _fit_memory(config, resolved, model.path, console)
    return _Inputs(model, sampler, prompts.encode, evaluation_sets, checkpoint, first_step, resolved)


def _resume(config: TrainConfig, sampler: Sampler, checkpoint: Path | None, console: Console) -> int:
    """Restore the sampler's state from a checkpoint and return the number of the next step."""
    if checkpoint is None:
        console.warning(f"{config.run.directory} has no checkpoint: starting at the first step")
        return 0
    state = read_controller_state(checkpoint)
    step: int = state["step"]
    if step > config.run.steps:
        raise ConfigError(f"run.steps is {config.run.steps}, but {checkpoint} was written after {step} steps")
    sampler.load_state_dict(state["sampler"])
    console.line(f"resuming from {checkpoint}")
    if damage := find_damage(config.run.directory, step):
        console.warning(f"{damage}; the run continues, but its report and its audit cannot read this file")
    return step


def _fit_memory(
    config: TrainConfig, resolved: ResolvedConfig[TrainConfig], model: Path, console: Console
) -> ResolvedConfig[TrainConfig]:
    """Set rows and recomputation; raise ConfigError if the model cannot be divided or a stage does not fit."""
    if not resolved.placement.machine.gpus:
        return resolved
    try:
        shape = ModelShape.read(model)
    except ConfigError as error:
        console.warning(f"memory was not checked: {error}")
        return resolved
    if config.placement.check_memory:
        require_division(config, shape)
        require_room(config, resolved, shape)
    fitted = with_update_settings(resolved, shape)
    console.line(describe_update(fitted.config.learner))
    return fitted


async def _start(
    stack: AsyncExitStack,
    inputs: _Inputs,
    components: Components,
    logs: Path,
    console: Console,
    cluster: Cluster,
) -> tuple[Rollouts, Learner]:
    """Start the rollouts and the learner, at the same time unless they share GPUs."""
    config, placement = inputs.resolved.config, inputs.resolved.placement
    opening = start_rollouts(
        inputs.resolved,
        inputs.model,
        console,
        RunContext(cluster, seed=config.run.seed, directory=logs),
        components,
        load_weights=inputs.checkpoint is None,  # a resumed learner sends its weights before the first turn
    )
    starting = _start_learner(stack, inputs, logs, console, cluster)
    if placement.colocated and placement.machine.gpus:
        # The engine measures the free memory of its GPU, so the learner must be offloaded before.
        learner = await starting
        return await stack.enter_async_context(opening), learner
    async with asyncio.TaskGroup() as starts:
        rollouts_start = starts.create_task(stack.enter_async_context(opening))
        learner_start = starts.create_task(starting)
    return rollouts_start.result(), learner_start.result()


async def _start_learner(
    stack: AsyncExitStack, inputs: _Inputs, logs: Path, console: Console, cluster: Cluster
) -> Learner:
    """Start the learner and load the checkpoint. Offload the learner if the engine uses the devices first."""
    config, placement = inputs.resolved.config, inputs.resolved.placement
    with console.progress("starting the learner"):
        learner = await Learner.start(
            LearnerSetup.from_config(config),
            log_directory=logs,
            devices=placement.rank_visible_devices,
            cluster=cluster,
            nodes=placement.rank_nodes,
        )
        await stack.enter_async_context(learner)
        if inputs.checkpoint is not None:
            await learner.load_checkpoint(inputs.checkpoint, verified=True)
        if config.learner.offload_while_sampling:
            await learner.offload("optimizer")
            await learner.offload("parameters")
    return learner
