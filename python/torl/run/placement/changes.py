"""The cheapest changes of settings with which a run fits its machine."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from torl.base.errors import ConfigError
from torl.components.hub.shape import ModelShape
from torl.run.config import LearningConfig
from torl.run.placement.ledger import Ledger, compute_ledger
from torl.run.placement.machine import Machine
from torl.run.placement.resolve import local_engine_options, resolve

_MAX_CHANGES = 4
_GPUS = (1, 2, 4, 8, 16, 32, 64, 128)
_GPUS_OF_NODE = 8


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


def changes(config: LearningConfig, machine: Machine) -> Iterator[Change]:
    """Yield changes that let more runs fit, the cheapest first. None of them changes the result of training."""
    learner, options = config.learner, local_engine_options(config)
    if learner.gradient_checkpointing is False:
        yield Change("learner.gradient_checkpointing", True, "a third more compute")
    if machine.gpus and learner.zero_stage < 2:
        yield Change("learner.zero_stage", 2, "nothing on more than one GPU")
    if (learner.max_row_tokens != "auto" or not machine.gpus) and learner.resolved_row_tokens > config.longest_sample:
        yield Change("learner.max_row_tokens", config.longest_sample, "shorter rows")
    if learner.max_stored_logits > 1 << 25:
        yield Change("learner.max_stored_logits", 1 << 25, "smaller products in the head")
    if options is not None:
        for name, value, cost in options.savings(on_gpus=bool(machine.gpus)):
            yield Change(f"engine.{name}", value, cost)
    if not machine.gpus:
        return
    if learner.zero_stage < 3:
        yield Change("learner.zero_stage", 3, "parameters are gathered for every row")
    for size in (2, 4, 8):
        if options is not None and size > options.tensor_parallel:
            yield Change("engine.tensor_parallel", size, "fewer engines, more communication")
    if learner.zero_stage > 0 and not (learner.offloads_optimizer or learner.offloads_parameters):
        yield Change("learner.offload", "optimizer", "optimizer steps on the CPU")


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
