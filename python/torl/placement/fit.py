"""Whether a run fits its machine, the longest rows that fit, and the cheapest changes that make a run fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeVar

from torl.config import LearnerConfig, LearningConfig, ModelRunConfig
from torl.errors import ConfigError
from torl.placement.learner_bytes import Bytes
from torl.placement.ledger import Ledger, compute_ledger
from torl.placement.machine import Machine
from torl.placement.resolve import ResolvedConfig, local_engine_options, resolve
from torl.placement.shape import ModelShape

Config = TypeVar("Config", bound=LearningConfig)

_GIB = 1 << 30
_MIN_FAST_ROW = 1 << 12  # fills a GPU with matrix products
_MAX_ROW = 1 << 15  # longer rows save no time
_ROW_STEP = 1 << 10
# Fraction of a GPU that the ledger does not count: memory that its allocator cannot reuse.
_SPARE = 0.1
_MAX_CHANGES = 4
_FEW_SEQUENCES = 64
_GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
_GPUS_OF_NODE = 8


def require_division(config: ModelRunConfig, shape: ModelShape) -> None:
    """Raise ConfigError if the model's heads cannot be divided among the workers of an engine."""
    options = local_engine_options(config)
    if options is None or divides(shape, options.tensor_parallel):
        return
    sizes = [str(each) for each in range(1, shape.heads + 1) if divides(shape, each)]
    raise ConfigError(
        f"engine.tensor_parallel is {options.tensor_parallel}, and the model has {shape.heads} attention heads "
        f"({shape.kv_heads} of keys and values): it can be {', '.join(sizes)}"
    )


def divides(shape: ModelShape, size: int) -> bool:
    """Whether vLLM can divide a model among `size` workers."""
    return shape.heads % size == 0 and (shape.kv_heads % size == 0 or size % shape.kv_heads == 0)


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


def advice(config: LearningConfig, machine: Machine, shape: ModelShape) -> str:
    """Suggest how to make a run fit: the cheapest changes of settings, and a number of GPUs."""
    chosen = cheapest(config, machine, shape)
    if not machine.gpus:
        more = "adapters (model.lora) and smaller models need less"
    elif (gpus := enough_gpus(config, machine, shape)) is None:
        more = "no number of such GPUs makes it fit as it is"
    else:
        more = f"it fits on {gpus} such GPUs as it is"
    if chosen is None:
        return f"no change of its settings makes it fit here; {more}"
    options = " ".join(f"--{change.name} {str(change.value).lower()}" for change in chosen)
    return f"it would fit with {options} ({'; '.join(change.cost for change in chosen)}); {more}"


def describe_update(learner: LearnerConfig) -> str:
    """Describe the rows of an update and its activations, for the console."""
    activations = "recomputed" if learner.gradient_checkpointing else "kept"
    return f"rows of {learner.resolved_row_tokens:,} tokens, activations {activations}"


def gib(size: float) -> str:
    """Format bytes in GiB."""
    return f"{size / _GIB:.1f} GiB"


# --- rows and recomputation --------------------------------------------------------------------------------


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


# --- changes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one setting.

    Attributes:
        name: Dotted name of the setting.
        value: New value.
        cost: Description of its cost.
    """

    name: str
    value: Any
    cost: str


def changes(config: LearningConfig, machine: Machine) -> Iterator[Change]:
    """Yield changes that save memory, the cheapest first. None of them changes the result of training."""
    learner, options = config.learner, local_engine_options(config)
    if learner.gradient_checkpointing is False:
        yield Change("learner.gradient_checkpointing", True, "a third more compute")
    if machine.gpus and learner.zero_stage < 2:
        yield Change("learner.zero_stage", 2, "nothing on more than one GPU")
    if (learner.max_row_tokens != "auto" or not machine.gpus) and learner.resolved_row_tokens > config.longest_sample:
        yield Change("learner.max_row_tokens", config.longest_sample, "shorter rows")
    if learner.max_stored_logits > 1 << 25:
        yield Change("learner.max_stored_logits", 1 << 25, "smaller products in the head")
    if not machine.gpus:
        if options is not None and options.max_sequences > _FEW_SEQUENCES:
            yield Change("engine.max_sequences", _FEW_SEQUENCES, "smaller batches in the engine")
        if options is not None and options.cpu_kv_cache_gib > 1:
            yield Change("engine.cpu_kv_cache_gib", 1, "fewer sequences at a time")
        return
    for fraction in (0.75, 0.6, 0.45, 0.3):
        if options is not None and fraction < options.gpu_memory_utilization:
            yield Change("engine.gpu_memory_utilization", fraction, "smaller batches in the engine")
    if learner.zero_stage < 3:
        yield Change("learner.zero_stage", 3, "parameters are gathered for every row")
    for size in (2, 4, 8):
        if options is not None and size > options.tensor_parallel:
            yield Change("engine.tensor_parallel", size, "fewer engines, more communication")
    if not (learner.offload_optimizer or learner.offload_parameters):
        yield Change("learner.offload_optimizer", True, "optimizer steps on the CPU")


def cheapest(config: LearningConfig, machine: Machine, shape: ModelShape) -> tuple[Change, ...] | None:
    """Return the smallest set of changes with which the run fits, among equals the cheapest; None if none does."""
    possible = list(changes(config, machine))
    for count in range(1, _MAX_CHANGES + 1):
        for chosen in combinations(possible, count):
            different = len({change.name for change in chosen}) == count
            if different and fits(with_changes(config, chosen), machine, shape):
                return chosen
    return None


def enough_gpus(config: LearningConfig, machine: Machine, shape: ModelShape) -> int | None:
    """Return the number of GPUs, like the largest of the machine, on which the run fits; None if no number suffices."""
    card = max(machine.gpus, key=lambda gpu: gpu.memory_bytes)
    for count in _GPUS:
        host_bytes = machine.host_bytes * max(1, count // _GPUS_OF_NODE)
        if fits(config, replace(machine, gpus=(card,) * count, host_bytes=host_bytes), shape):
            return count
    return None


def fits(config: LearningConfig, machine: Machine, shape: ModelShape) -> bool:
    """Whether the run can be placed on the machine, with enough memory for every stage."""
    ledger = try_ledger(config, machine, shape)
    return ledger is not None and not ledger.excess()


def try_ledger(config: LearningConfig, machine: Machine, shape: ModelShape) -> Ledger | None:
    """Compute the ledger of a run; None if it cannot be placed."""
    try:
        return compute_ledger(resolve(config, machine), shape)
    except ConfigError:
        return None


def with_changes(config: LearningConfig, chosen: tuple[Change, ...]) -> LearningConfig:
    """Return the configuration with changed options of the learner and the engine."""
    sections: dict[str, dict[str, Any]] = {"learner": {}, "engine": {}}
    for change in chosen:
        section, _, name = change.name.partition(".")
        sections[section][name] = change.value
    engine = replace(config.engine, options=config.engine.options.model_copy(update=sections["engine"]))
    return config.model_copy(
        update={"learner": config.learner.model_copy(update=sections["learner"]), "engine": engine}
    )
