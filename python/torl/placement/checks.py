"""What is wrong with a placed run before anything is loaded: a model that does not divide, memory that is not there."""

from typing import Any

from torl.config import ModelRunConfig, TrainConfig
from torl.errors import ConfigError
from torl.placement.ledger import Ledger, ledger
from torl.placement.machine import Machine
from torl.placement.remedies import cheapest, enough_gpus
from torl.placement.resolve import ResolvedConfig
from torl.placement.shape import ModelShape

_GIB = 1 << 30


def require_division(config: ModelRunConfig, shape: ModelShape) -> None:
    """Raise ConfigError if the model's heads cannot be divided among the workers of an engine."""
    size = getattr(config.engine.options, "tensor_parallel", 1)
    if divides(shape, size):
        return
    fits = [str(each) for each in range(1, shape.heads + 1) if divides(shape, each)]
    raise ConfigError(
        f"engine.tensor_parallel is {size}, and the model has {shape.heads} attention heads ({shape.kv_heads} of keys "
        f"and values): it can be {', '.join(fits)}"
    )


def divides(shape: ModelShape, size: int) -> bool:
    """Whether vLLM divides a model among so many workers."""
    return shape.heads % size == 0 and (shape.kv_heads % size == 0 or size % shape.kv_heads == 0)


def require_room(config: TrainConfig, settled: ResolvedConfig[TrainConfig], shape: ModelShape) -> None:
    """Raise ConfigError if a stage of a run needs more memory than its GPUs or the host have; says what would fit.

    Args:
        config: as it was given.
        settled: what it has become.
        shape: of the model.
    """
    if not settled.counted:
        return
    book = ledger(settled, shape)
    if book.excess():
        raise ConfigError(f"{explain(book)}\n{advice(config, settled.placement.machine, shape)}")


def explain(book: Ledger) -> str:
    """The stages that do not fit, one on each line, with the largest things that are there."""
    lines = []
    for stage, place, needed, there in book.excess():
        line = f"{stage.name}: {place} would need {gib(needed)} and has {gib(there)}"
        held: Any = {}
        if place.startswith("GPU "):
            held = stage.on_gpu(int(place.removeprefix("GPU ")), book.placement)
        elif place == "host":
            held = stage.host
        largest = sorted(held.items(), key=lambda item: -item[1])[:4]
        lines.append(line + (f" ({', '.join(f'{name} {gib(size)}' for name, size in largest)})" if largest else ""))
    return "\n".join(lines)


def advice(config: TrainConfig, machine: Machine, shape: ModelShape) -> str:
    """What would make it fit: the cheapest changes, or so many GPUs."""
    chosen = cheapest(config, machine, shape)
    gpus = enough_gpus(config, machine, shape)
    more = "no number of such GPUs makes it fit as it is" if gpus is None else f"it fits on {gpus} such GPUs as it is"
    if chosen is None:
        return f"no change of its settings makes it fit here; {more}"
    options = " ".join(f"--{change.name} {str(change.value).lower()}" for change in chosen)
    return f"it would fit with {options} ({'; '.join(change.cost for change in chosen)}); {more}"


def gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / _GIB:.1f} GiB"
