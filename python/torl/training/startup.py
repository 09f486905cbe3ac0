"""Startup of a run, for training and fine-tuning: resume, check the memory, start the learner and the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

from torl.base.component import RunContext
from torl.base.errors import CheckpointError, ConfigError, RecordError
from torl.base.runtime.cluster import Cluster
from torl.base.types import Problem, Prompt
from torl.components.data import Sampler
from torl.components.hub import resolve_model_config
from torl.components.hub.shape import ModelShape
from torl.components.text.prompts import EncodedPrompts
from torl.learner.checkpoint.directory import clean_checkpoints, latest_checkpoint, read_controller_state
from torl.learner.learner import Learner
from torl.learner.messages import LearnerSetup
from torl.rollout.model_directory import ModelDirectory
from torl.rollout.startup import Components, Rollouts, machine_of, start_rollouts
from torl.run.config import LearningConfig
from torl.run.display.console import Console
from torl.run.placement.fit import crowded_memory, describe_update, require_division, require_room, with_update_settings
from torl.run.placement.resolve import ResolvedConfig, resolve, slow_precision
from torl.run.records.files import CONFIG_FILE, METRICS_FILE
from torl.run.records.reading import find_damage
from torl.run.records.receipt import CHECKPOINTS, RECEIPT_FILE, find_missing, read_receipt
from torl.training.checkpoints import require_shared_storage

Config = TypeVar("Config", bound=LearningConfig)


@dataclass(frozen=True, slots=True)
class RunInputs(Generic[Config]):
    """The validated inputs of a run, before any process is started.

    Attributes:
        model: Model of the run.
        sampler: Order of the problems or examples.
        evaluation_sets: Evaluation sets by name.
        checkpoint: Checkpoint that the run resumes from.
        first_step: Number of the first step.
        resolved: Resolved configuration, and placement.
        encode: Function that puts a problem into the run's template and encodes it. None for fine-tuning.
        ahead: Prompts that steps ahead of the checkpoint had taken.
        sources: Hash of the rows of each source (`SourceDigest.entry`), by its setting.
    """

    model: ModelDirectory
    sampler: Sampler
    evaluation_sets: Mapping[str, EncodedPrompts]
    checkpoint: Path | None
    first_step: int
    resolved: ResolvedConfig[Config]
    encode: Callable[[Problem], Prompt] | None = None
    ahead: tuple[Prompt, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


async def prepare_inputs(
    config: Config,
    model: ModelDirectory,
    sampler: Sampler,
    evaluation_sets: Mapping[str, EncodedPrompts],
    directory: Path,
    console: Console,
    cluster: Cluster,
) -> RunInputs[Config]:
    """Find the checkpoint to resume from, place the run, and check its memory.

    Raises:
        TorlError: The checkpoint does not belong to the run, or the run does not fit the devices.
    """
    checkpoint = None
    if config.run.resume:
        clean_checkpoints(directory)
        checkpoint = latest_checkpoint(directory)
    first_step = _resume(config, sampler, checkpoint, console) if config.run.resume else 0
    resolved = resolve(config, await machine_of(cluster))
    console.line(f"placement: {resolved.placement}")
    if warning := slow_precision(resolved):
        console.warning(warning)
    if cluster.is_remote:
        await require_shared_storage(cluster, directory, resolved.placement.rank_nodes)
    resolved = _fit_memory(config, resolved, model.path, console)
    return RunInputs(model, sampler, evaluation_sets, checkpoint, first_step, resolved)


def _resume(config: LearningConfig, sampler: Sampler, checkpoint: Path | None, console: Console) -> int:
    """Restore the sampler's state from a checkpoint and return the number of the next step."""
    if checkpoint is None:
        _require_no_lost_checkpoint(config.run.directory)
        console.warning(f"{config.run.directory} has no checkpoint: starting at the first step")
        return 0
    state = read_controller_state(checkpoint)
    step: int = state["step"]
    if step > config.total_steps:
        raise ConfigError(f"run.steps is {config.total_steps}, but {checkpoint} was written after {step} steps")
    sampler.load_state_dict(state["sampler"])
    console.line(f"resuming from {checkpoint}")
    _require_metrics(config.run.directory, step, console)
    if damage := find_damage(config.run.directory, step):
        console.warning(f"{damage}; the run continues, but its report and its audit cannot read this file")
    return step


def _require_metrics(directory: Path, step: int, console: Console) -> None:
    """Raise RecordError if rows of metrics before a step are missing or have changed; warn of other missing records.

    The run reads the metrics: for the best checkpoint, the first gap of engine and learner, and its summary.
    """
    missing, lost_rows = find_missing(directory, step)
    if lost_rows:
        raise RecordError(
            f"{directory / METRICS_FILE}: {lost_rows} rows before step {step} are missing or have changed since they "
            "were written, and the run needs them for checkpoint.keep_best and its summary: restore the file, or "
            "choose another run.directory"
        )
    if missing:
        more = f" and {len(missing) - 1} other files" if missing[1:] else ""
        console.warning(
            f"{directory / missing[0]}{more} of the steps before {step} are missing; the run continues, but its audit "
            "finds them missing, and `torl view` and `torl replay` cannot show these steps"
        )
    if (directory / CONFIG_FILE).exists() and not (directory / RECEIPT_FILE).exists():
        console.warning(
            f"{directory / RECEIPT_FILE} is missing; the run continues, but nothing shows whether records before step "
            f"{step} have changed"
        )


def _require_no_lost_checkpoint(directory: Path) -> None:
    """Raise CheckpointError if the receipt has checkpoints: starting again would remove the records of the run."""
    if any(PurePath(name).match(CHECKPOINTS) for line in read_receipt(directory) for name in line["files"]):
        raise CheckpointError(
            f"{directory} no longer has the checkpoints that the run wrote: it cannot be resumed, and starting again "
            "would remove its records; choose another run.directory"
        )


def _fit_memory(
    config: Config, resolved: ResolvedConfig[Config], model: Path, console: Console
) -> ResolvedConfig[Config]:
    """Set rows and recomputation; raise ConfigError if the model cannot be divided or a stage does not fit."""
    others = (config.critic.path if config.algorithm.needs_critic else None, config.algorithm.kl.path)
    try:
        shape = ModelShape.read(model)
        for other in filter(None, others):
            ModelShape.read(resolve_model_config(other))
    except ConfigError as error:
        console.warning(f"memory was not checked: {error}")
        return resolved
    if config.placement.check_memory:
        require_division(config, shape)
        require_room(config, resolved, shape)
        if warning := crowded_memory(resolved, shape):
            console.warning(warning)
    if not resolved.placement.machine.gpus:
        return resolved
    fitted = with_update_settings(resolved, shape)
    console.line(describe_update(fitted.config.learner))
    return fitted


@asynccontextmanager
async def start_sides(
    inputs: RunInputs[Config], components: Components | None, logs: Path, console: Console, cluster: Cluster
) -> AsyncIterator[tuple[Rollouts | None, Learner]]:
    """Start the rollouts and the learner, at the same time unless they share GPUs. Both are closed with the block.

    Args:
        inputs: Inputs of the run.
        components: Components of the rollouts. None for a run without episodes.
        logs: Directory of the logs.
        console: Console for the progress.
        cluster: Cluster of the run.

    Raises:
        TorlError: A component does not start.
    """
    config, placement = inputs.resolved.config, inputs.resolved.placement
    async with AsyncExitStack() as stack:
        starting = _start_learner(stack, inputs, logs, console, cluster)
        if components is None:
            yield None, await starting
            return
        opening = start_rollouts(
            inputs.resolved,
            inputs.model,
            console,
            RunContext(cluster, seed=config.run.seed, directory=logs),
            components,
            load_weights=inputs.checkpoint is None,  # a resumed learner sends its weights before the first turn
        )
        if placement.colocated and placement.machine.gpus:
            # The engine measures the free memory of its GPU, so the learner must be offloaded before.
            learner = await starting
            rollouts = await stack.enter_async_context(opening)
        else:
            async with asyncio.TaskGroup() as starts:
                rollouts_start = starts.create_task(stack.enter_async_context(opening))
                learner_start = starts.create_task(starting)
            rollouts, learner = rollouts_start.result(), learner_start.result()
        yield rollouts, learner


async def _start_learner(
    stack: AsyncExitStack, inputs: RunInputs[Config], logs: Path, console: Console, cluster: Cluster
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
        if config.learner.offloads_while_sampling and config.plays_episodes:
            await learner.offload("optimizer")
            await learner.offload("parameters")
    return learner
