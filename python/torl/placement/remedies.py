"""The cheapest change of a run that makes it fit, or the machine that it would need."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from torl.config import TrainConfig
from torl.errors import ConfigError
from torl.placement.ledger import Ledger, ledger
from torl.placement.machine import Machine
from torl.placement.resolve import resolve
from torl.placement.shape import ModelShape

_MAX_CHANGES = 4
_GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
_NODE = 8  # GPUs that share a host's memory


@dataclass(frozen=True, slots=True)
class Change:
    """One setting by its dotted name, and what it costs in words."""

    name: str
    value: Any
    cost: str


def changes(config: TrainConfig) -> Iterator[Change]:
    """What may make room, the cheapest first. None of it changes what is learned."""
    learner, options = config.learner, config.engine.options
    if not learner.gradient_checkpointing:
        yield Change("learner.gradient_checkpointing", True, "a third more compute")
    if learner.zero_stage < 2:
        yield Change("learner.zero_stage", 2, "nothing on more than one GPU")
    longest = config.longest_prompt + config.rollout.max_response_tokens
    if learner.max_row_tokens != "auto" and learner.max_row_tokens > longest:
        yield Change("learner.max_row_tokens", longest, "shorter rows")
    if learner.max_stored_logits > 1 << 25:
        yield Change("learner.max_stored_logits", 1 << 25, "smaller products in the head")
    for share in (0.75, 0.6, 0.45, 0.3):
        if share < getattr(options, "gpu_memory_utilization", 0):
            yield Change("engine.gpu_memory_utilization", share, "fewer sequences at once")
    if learner.zero_stage < 3:
        yield Change("learner.zero_stage", 3, "parameters are gathered for every row")
    for size in (2, 4, 8):
        if size > getattr(options, "tensor_parallel", size):
            yield Change("engine.tensor_parallel", size, "fewer engines, more communication")
    if not (learner.offload_optimizer or learner.offload_parameters):
        yield Change("learner.offload_optimizer", True, "optimizer steps on the CPU")


def cheapest(config: TrainConfig, machine: Machine, shape: ModelShape) -> tuple[Change, ...] | None:
    """The fewest and, of as many, the cheapest changes with which the run fits; None if none do."""
    possible = list(changes(config))
    for count in range(1, _MAX_CHANGES + 1):
        for chosen in combinations(possible, count):
            different = len({change.name for change in chosen}) == count
            if different and fits(with_changes(config, chosen), machine, shape):
                return chosen
    return None


def enough_gpus(config: TrainConfig, machine: Machine, shape: ModelShape) -> int | None:
    """How many GPUs like the largest here the run would fit on as it is; None if no number of them helps."""
    card = max(machine.gpus, key=lambda gpu: gpu.memory_bytes)
    for count in _GPUS:
        several = replace(
            machine,
            gpus=(card,) * count,
            host_bytes=machine.host_bytes * max(1, count // _NODE),
        )
        if fits(config, several, shape):
            return count
    return None


def fits(config: TrainConfig, machine: Machine, shape: ModelShape) -> bool:
    """Whether the run can be placed on the machine, and no stage of it needs more memory than there is."""
    ledger_of = try_ledger(config, machine, shape)
    return ledger_of is not None and not ledger_of.excess()


def try_ledger(config: TrainConfig, machine: Machine, shape: ModelShape) -> Ledger | None:
    """The ledger of a run; None where it cannot be placed."""
    try:
        return ledger(resolve(config, machine), shape)
    except ConfigError:
        return None


def with_changes(config: TrainConfig, chosen: tuple[Change, ...]) -> TrainConfig:
    """The configuration with other values of some options of the learner and the engine."""
    sections: dict[str, dict[str, Any]] = {"learner": {}, "engine": {}}
    for change in chosen:
        section, _, name = change.name.partition(".")
        sections[section][name] = change.value
    options: Any = config.engine.options
    engine = replace(config.engine, options=options.model_copy(update=sections["engine"]))
    return config.model_copy(
        update={"learner": config.learner.model_copy(update=sections["learner"]), "engine": engine}
    )
