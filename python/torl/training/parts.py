"""The parts of a training run: reading everything that can be wrong, then starting them in the order that fits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torl.component import RunContext
from torl.config import TrainConfig
from torl.data import Sampler
from torl.errors import ConfigError
from torl.learner.checkpoint.directory import latest_checkpoint, read_controller_state
from torl.learner.learner import Learner
from torl.learner.messages import LearnerSetup
from torl.placement.checks import require_division, require_room
from torl.placement.resolve import ResolvedConfig, resolve
from torl.placement.rows import with_row_tokens
from torl.placement.shape import ModelShape
from torl.records import metric_names as names
from torl.records.run_directory import write_config
from torl.records.writers import RunWriter
from torl.report.console import Console
from torl.rollout.episode import EpisodePlayer
from torl.rollout.model_directory import ModelDirectory
from torl.rollout.startup import Components, Rollouts, machine_of, start_rollouts
from torl.runtime.cluster import Cluster
from torl.text.prompts import EncodedPrompts
from torl.training.checkpoints import Checkpoints
from torl.training.shared_directory import require_shared_storage


@dataclass(slots=True)
class RunComponents:
    """Everything that a run has, started."""

    config: TrainConfig
    directory: Path
    console: Console
    sampler: Sampler
    evaluation_sets: Mapping[str, EncodedPrompts]
    rollouts: Rollouts
    learner: Learner
    writer: RunWriter
    checkpoint: Path | None  # that the run resumes from
    first_step: int
    colocated: bool  # whether learner and engine have the same devices
    checkpoints: Checkpoints
    _idle_seconds: float = field(default=0.0, init=False)

    @property
    def player(self) -> EpisodePlayer:
        """The player of the rollouts."""
        return self.rollouts.player

    def counters(self) -> dict[str, float]:
        """What the parts have counted, under the names of metrics."""
        player, idle = self.player, self.player.engine.idle_seconds
        metrics = {names.EPOCH: float(self.sampler.epoch), names.TIME_ENGINE_IDLE: idle - self._idle_seconds}
        self._idle_seconds = idle
        return metrics | player.metrics() | names.reward_counts(self.rollouts.reward.metrics())


@asynccontextmanager
async def open_run_components(
    config: TrainConfig, directory: Path, console: Console, cluster: Cluster
) -> AsyncIterator[RunComponents]:
    """Read everything that can be wrong, then start the parts on a cluster; they end with the block.

    Raises:
        TorlError: what was wrong with the configuration, the data, a checkpoint or a part.
    """
    model = ModelDirectory.open(config.model.path, config.rollout.tools, config.rollout.environment)
    prompts = model.prompts(config.data.train, config.data)
    sampler: Sampler = config.data.sampler.make(prompts, config.run.seed)
    console.line(f"train: {prompts}")
    if config.rollout.prompts_per_step > len(sampler):
        raise ConfigError(
            f"rollout.prompts_per_step is {config.rollout.prompts_per_step}, but data.train has "
            f"{len(sampler)} problems that can be taken at once"
        )
    evaluation_sets = {
        name: model.problem_set(name, problems, config.data, config.evaluation, console)
        for name, problems in config.data.evaluation.items()
    }
    checkpoint = latest_checkpoint(directory) if config.run.resume else None
    first_step = _resume(config, sampler, checkpoint, console) if config.run.resume else 0
    settled = resolve(config, await machine_of(cluster))
    placement = settled.placement
    console.line(f"placement: {placement}")
    if cluster.is_remote:
        await require_shared_storage(cluster, directory, placement.rank_nodes)
    settled = _fitted(config, settled, model.path, console)
    components = replace(
        Components.from_config(settled.config), shuffle_observations=config.ablation.shuffle_observations
    )
    for line in write_config(directory, config):
        console.line(line)
    async with AsyncExitStack() as stack:
        writer = stack.enter_context(RunWriter(directory, resume_step=first_step if config.run.resume else None))
        logs = directory / "logs"
        opening = start_rollouts(
            settled,
            model,
            console,
            RunContext(cluster, seed=config.run.seed, directory=logs),
            components,
            load_weights=checkpoint is None,  # otherwise the learner's weights arrive before the first turn
        )
        learning = _open_learner(stack, settled, logs, console, checkpoint, cluster)
        if placement.colocated and placement.machine.gpus:
            # The engine takes its share of a GPU for itself, and measures what is left: the learner is away by then.
            learner = await learning
            rollouts = await stack.enter_async_context(opening)
        else:
            async with asyncio.TaskGroup() as starts:
                rollouts_start = starts.create_task(stack.enter_async_context(opening))
                learner_start = starts.create_task(learning)
            rollouts, learner = rollouts_start.result(), learner_start.result()
        checkpoints = Checkpoints(config.checkpoint, directory, learner)
        if checkpoint is not None:
            checkpoints.load_history(first_step)
        yield RunComponents(
            config=settled.config,
            directory=directory,
            console=console,
            sampler=sampler,
            evaluation_sets=evaluation_sets,
            rollouts=rollouts,
            learner=learner,
            writer=writer,
            checkpoint=checkpoint,
            first_step=first_step,
            colocated=placement.colocated,
            checkpoints=checkpoints,
        )


def _resume(config: TrainConfig, sampler: Sampler, checkpoint: Path | None, console: Console) -> int:
    """Put the sampler where the checkpoint was written; returns the step that comes next."""
    if checkpoint is None:
        console.warning(f"{config.run.directory} has no checkpoint yet: starting at the first step")
        return 0
    state = read_controller_state(checkpoint)
    step: int = state["step"]
    if step > config.run.steps:
        raise ConfigError(f"run.steps is {config.run.steps}, but {checkpoint} was written after {step} steps")
    sampler.load_state_dict(state["sampler"])
    console.line(f"resuming from {checkpoint}")
    return step


def _fitted(
    config: TrainConfig, settled: ResolvedConfig[TrainConfig], model: Path, console: Console
) -> ResolvedConfig[TrainConfig]:
    """With rows as long as there is room for; raises ConfigError if the model does not divide among the GPUs, or what
    is on them does not fit."""
    if not settled.placement.machine.gpus:
        return settled
    try:
        shape = ModelShape.read(model)
    except ConfigError as error:
        console.warning(f"not checked before the start: {error}")
        return settled
    if config.placement.check_memory:
        require_division(config, shape)
        require_room(config, settled, shape)
    rows = with_row_tokens(settled, shape)
    console.line(f"rows of {rows.config.learner.resolved_row_tokens:,} tokens")
    return rows


async def _open_learner(
    stack: AsyncExitStack,
    settled: ResolvedConfig[TrainConfig],
    logs: Path,
    console: Console,
    checkpoint: Path | None,
    cluster: Cluster,
) -> Learner:
    """The learner as the checkpoint left it, and offloaded where the engine has the devices first."""
    config, devices = settled.config, settled.placement.rank_visible_devices
    with console.progress("starting the learner"):
        learner = await Learner.start(
            LearnerSetup.from_config(config),
            log_directory=logs,
            devices=devices,
            cluster=cluster,
            nodes=settled.placement.rank_nodes,
        )
        await stack.enter_async_context(learner)
        if checkpoint is not None:
            await learner.load_checkpoint(checkpoint, verified=True)
        if config.learner.offload_while_sampling:
            await learner.offload("optimizer")
            await learner.offload("parameters")
    return learner
