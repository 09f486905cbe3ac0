"""Whether a run fits its machine, and the longest rows that fit."""

from dataclasses import replace
from typing import Any, TypeVar

from torl.base.errors import ConfigError
from torl.components.engine.memory import Bytes
from torl.components.hub.shape import ModelShape
from torl.run.config import LearnerConfig, LearningConfig, ModelRunConfig
from torl.run.placement.changes import advice
from torl.run.placement.ledger import Ledger, compute_ledger
from torl.run.placement.resolve import ResolvedConfig, local_engine_options

Config = TypeVar("Config", bound=LearningConfig)

_GIB = 1 << 30
_MIN_FAST_ROW = 1 << 12  # fills a GPU with matrix products
_MAX_ROW = 1 << 15  # longer rows save no time
_ROW_STEP = 1 << 10
# Fraction of a GPU that the ledger does not count: memory that its allocator cannot reuse.
_SPARE = 0.1


def require_division(config: ModelRunConfig, shape: ModelShape) -> None:
    """Raise ConfigError if the model's heads cannot be divided among the workers of an engine."""
    options = local_engine_options(config)
    if options is None or options.divides(shape, options.tensor_parallel):
        return
    sizes = [str(each) for each in range(1, shape.heads + 1) if options.divides(shape, each)]
    raise ConfigError(
        f"engine.tensor_parallel is {options.tensor_parallel}, and the model has {shape.heads} attention heads "
        f"({shape.kv_heads} of keys and values): it can be {', '.join(sizes)}"
    )


def require_room(config: LearningConfig, resolved: ResolvedConfig[LearningConfig], shape: ModelShape) -> None:
    """Raise ConfigError if a stage of a run needs more memory than its GPUs or the host have; suggests changes.

    Args:
        config: Configuration of the user.
        resolved: The same configuration, resolved on the machine.
        shape: Shape of the model.
    """
    if not resolved.has_known_memory:
        return
    ledger = compute_ledger(resolved, shape)
    if ledger.excess():
        raise ConfigError(f"{explain(ledger)}\n{advice(config, resolved.placement.machine, shape)}")


def crowded_memory(resolved: ResolvedConfig[LearningConfig], shape: ModelShape) -> str | None:
    """Return a warning if other programs use CPU memory that the run will need; None otherwise."""
    machine = resolved.placement.machine
    if not resolved.has_known_memory:
        return None
    stage = compute_ledger(resolved, shape).fullest
    needed, free = sum(stage.host.values()), machine.host_bytes - machine.host_used_bytes
    if needed <= free:
        return None
    return (
        f"{stage.name}: the run would need {gib(needed)} of CPU memory and has {gib(free)} free "
        f"({_largest(stage.host)}): {gib(machine.host_used_bytes)} are used by other programs"
    )


def explain(ledger: Ledger) -> str:
    """List the stages that do not fit, one per line, with their largest users of memory."""
    lines = []
    for stage, location, needed, available in ledger.excess():
        line = f"{stage.name}: {location} would need {gib(needed)} and has {gib(available)}"
        users: Bytes = {}
        if location.startswith("GPU "):
            gpu = int(location.removeprefix("GPU "))
            users = stage.on_gpu(gpu, ledger.placement)
            if used := ledger.placement.machine.gpus[gpu].used_bytes:
                line += f" free: {gib(used)} are used by other programs, which nvidia-smi lists"
        elif location == "host":
            users = stage.host
        lines.append(line + (f" ({_largest(users)})" if users else ""))
    return "\n".join(lines)


def _largest(users: Bytes) -> str:
    largest = sorted(users.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{name} {gib(size)}" for name, size in largest)


def describe_update(learner: LearnerConfig) -> str:
    """Describe the rows of an update and its activations, for the console."""
    activations = "recomputed" if learner.gradient_checkpointing else "kept"
    return f"rows of {learner.resolved_row_tokens:,} tokens, activations {activations}"


def gib(size: float) -> str:
    """Format bytes in GiB."""
    return f"{size / _GIB:.1f} GiB"


def with_update_settings(resolved: ResolvedConfig[Config], shape: ModelShape) -> ResolvedConfig[Config]:
    """Resolve "auto" for `learner.max_row_tokens` and `learner.gradient_checkpointing`.

    Rows are the longest that leave a tenth of the learner's GPUs free, and at least as long as the longest sample, even
    if it does not fit. Activations are kept instead of recomputed if rows stay long enough for matrix products at full
    speed. Across nodes ZeRO-3 recomputes: gathering the parameters for more rows would cost more than it saves.

    A run on cores, or whose memory cannot be predicted, is returned unchanged.
    """
    learner = resolved.config.learner
    if not resolved.placement.machine.gpus or not resolved.has_known_memory:
        return resolved
    recompute = learner.gradient_checkpointing
    if recompute == "auto":
        kept = _with_longest_rows(_with_learner(resolved, gradient_checkpointing=False), shape)
        tokens = compute_ledger(kept, shape).learner.max_row_tokens
        gathers_over_network = learner.zero_stage == 3 and bool(resolved.placement.machine.nodes)
        if tokens >= _MIN_FAST_ROW and not gathers_over_network and _leaves_room(kept, shape):
            return kept
        resolved = _with_learner(resolved, gradient_checkpointing=True)
    return _with_longest_rows(resolved, shape)


def _with_longest_rows(resolved: ResolvedConfig[Config], shape: ModelShape) -> ResolvedConfig[Config]:
    if resolved.config.learner.max_row_tokens != "auto":
        return resolved
    shortest = compute_ledger(resolved, shape).learner.longest_sample
    tokens = max(shortest, _MAX_ROW)
    while tokens > shortest and not _leaves_room(_with_learner(resolved, max_row_tokens=tokens), shape):
        tokens = max(shortest, (tokens - 1) // _ROW_STEP * _ROW_STEP)
    return _with_learner(resolved, max_row_tokens=tokens)


def _with_learner(resolved: ResolvedConfig[Config], **changes: Any) -> ResolvedConfig[Config]:
    learner = resolved.config.learner.model_copy(update=changes)
    return replace(resolved, config=resolved.config.model_copy(update={"learner": learner}))


def _leaves_room(resolved: ResolvedConfig[LearningConfig], shape: ModelShape) -> bool:
    ledger = compute_ledger(resolved, shape)
    (update,) = [stage for stage in ledger.stages if stage.name == "update"]
    gpus = resolved.placement.machine.gpus
    return all(
        sum(update.on_gpu(gpu, resolved.placement).values()) <= gpus[gpu].free_bytes - _SPARE * gpus[gpu].memory_bytes
        for gpu in resolved.placement.learner_devices
    )
