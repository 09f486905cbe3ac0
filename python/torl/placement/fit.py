"""Whether a run fits its machine, the longest rows that fit, and the cheapest changes that make a run fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from torl.config import ModelRunConfig, TrainConfig
from torl.errors import ConfigError
from torl.placement.learner_bytes import Bytes
from torl.placement.ledger import Ledger, compute_ledger
from torl.placement.machine import Machine
from torl.placement.resolve import ResolvedConfig, local_engine_options, resolve
from torl.placement.shape import ModelShape

_GIB = 1 << 30
# Longer rows do not save time: the matrix products of an eighth of this length fill a GPU.
_MAX_ROW = 1 << 15
_ROW_STEP = 1 << 10
# Fraction of a GPU that the ledger does not count: memory that its allocator cannot reuse.
_SPARE = 0.1
_MAX_CHANGES = 4
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


def require_room(config: TrainConfig, resolved: ResolvedConfig[TrainConfig], shape: ModelShape) -> None:
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


def explain(ledger: Ledger) -> str:
    """List the stages that do not fit, one per line, with their largest users of memory."""
    lines = []
    for stage, location, needed, available in ledger.excess():
        line = f"{stage.name}: {location} would need {gib(needed)} and has {gib(available)}"
        users: Bytes = {}
        if location.startswith("GPU "):
            users = stage.on_gpu(int(location.removeprefix("GPU ")), ledger.placement)
        elif location == "host":
            users = stage.host
        largest = sorted(users.items(), key=lambda item: -item[1])[:4]
        lines.append(line + (f" ({', '.join(f'{name} {gib(size)}' for name, size in largest)})" if largest else ""))
    return "\n".join(lines)


def advice(config: TrainConfig, machine: Machine, shape: ModelShape) -> str:
    """Suggest how to make a run fit: the cheapest changes of settings, and a number of GPUs."""
    chosen = cheapest(config, machine, shape)
    gpus = enough_gpus(config, machine, shape)
    more = "no number of such GPUs makes it fit as it is" if gpus is None else f"it fits on {gpus} such GPUs as it is"
    if chosen is None:
        return f"no change of its settings makes it fit here; {more}"
    options = " ".join(f"--{change.name} {str(change.value).lower()}" for change in chosen)
    return f"it would fit with {options} ({'; '.join(change.cost for change in chosen)}); {more}"


def gib(size: float) -> str:
    """Format bytes in GiB."""
    return f"{size / _GIB:.1f} GiB"


# --- rows -------------------------------------------------------------------------------------------------


def with_row_tokens(resolved: ResolvedConfig[TrainConfig], shape: ModelShape) -> ResolvedConfig[TrainConfig]:
    """Resolve `learner.max_row_tokens = "auto"` to the longest rows that leave a tenth of the learner's GPUs free.

    Rows are at least as long as the longest sample, even if it does not fit. A run whose memory cannot be predicted is
    returned unchanged.
    """
    if resolved.config.learner.max_row_tokens != "auto" or not resolved.has_known_memory:
        return resolved
    shortest = compute_ledger(resolved, shape).learner.longest_sample
    tokens = max(shortest, _MAX_ROW)
    while tokens > shortest and not _leaves_room(_with_rows(resolved, tokens), shape):
        tokens = max(shortest, (tokens - 1) // _ROW_STEP * _ROW_STEP)
    return _with_rows(resolved, tokens)


def _with_rows(resolved: ResolvedConfig[TrainConfig], tokens: int) -> ResolvedConfig[TrainConfig]:
    learner = resolved.config.learner.model_copy(update={"max_row_tokens": tokens})
    return replace(resolved, config=resolved.config.model_copy(update={"learner": learner}))


def _leaves_room(resolved: ResolvedConfig[TrainConfig], shape: ModelShape) -> bool:
    ledger = compute_ledger(resolved, shape)
    (update,) = [stage for stage in ledger.stages if stage.name == "update"]
    gpus = resolved.placement.machine.gpus
    return all(
        sum(update.on_gpu(gpu, resolved.placement).values()) <= (1 - _SPARE) * gpus[gpu].memory_bytes
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


def changes(config: TrainConfig) -> Iterator[Change]:
    """Yield changes that save memory, the cheapest first. None of them changes the result of training."""
    learner, options = config.learner, local_engine_options(config)
    if not learner.gradient_checkpointing:
        yield Change("learner.gradient_checkpointing", True, "a third more compute")
    if learner.zero_stage < 2:
        yield Change("learner.zero_stage", 2, "nothing on more than one GPU")
    longest = config.longest_prompt + config.rollout.max_response_tokens
    if learner.max_row_tokens != "auto" and learner.max_row_tokens > longest:
        yield Change("learner.max_row_tokens", longest, "shorter rows")
    if learner.max_stored_logits > 1 << 25:
        yield Change("learner.max_stored_logits", 1 << 25, "smaller products in the head")
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


def cheapest(config: TrainConfig, machine: Machine, shape: ModelShape) -> tuple[Change, ...] | None:
    """Return the smallest set of changes with which the run fits, among equals the cheapest; None if none does."""
    possible = list(changes(config))
    for count in range(1, _MAX_CHANGES + 1):
        for chosen in combinations(possible, count):
            different = len({change.name for change in chosen}) == count
            if different and fits(with_changes(config, chosen), machine, shape):
                return chosen
    return None


def enough_gpus(config: TrainConfig, machine: Machine, shape: ModelShape) -> int | None:
    """Return the number of GPUs, like the largest of the machine, on which the run fits; None if no number suffices."""
    card = max(machine.gpus, key=lambda gpu: gpu.memory_bytes)
    for count in _GPUS:
        host_bytes = machine.host_bytes * max(1, count // _GPUS_OF_NODE)
        if fits(config, replace(machine, gpus=(card,) * count, host_bytes=host_bytes), shape):
            return count
    return None


def fits(config: TrainConfig, machine: Machine, shape: ModelShape) -> bool:
    """Whether the run can be placed on the machine, with enough memory for every stage."""
    ledger = try_ledger(config, machine, shape)
    return ledger is not None and not ledger.excess()


def try_ledger(config: TrainConfig, machine: Machine, shape: ModelShape) -> Ledger | None:
    """Compute the ledger of a run; None if it cannot be placed."""
    try:
        return compute_ledger(resolve(config, machine), shape)
    except ConfigError:
        return None


def with_changes(config: TrainConfig, chosen: tuple[Change, ...]) -> TrainConfig:
    """Return the configuration with changed options of the learner and the engine."""
    sections: dict[str, dict[str, Any]] = {"learner": {}, "engine": {}}
    for change in chosen:
        section, _, name = change.name.partition(".")
        sections[section][name] = change.value
    engine = replace(config.engine, options=config.engine.options.model_copy(update=sections["engine"]))
    return config.model_copy(
        update={"learner": config.learner.model_copy(update=sections["learner"]), "engine": engine}
    )
