"""The stages of a step, with their bytes by purpose."""

from dataclasses import dataclass

from torl.components.engine.memory import Bytes
from torl.run.placement.assign import Placement


@dataclass(frozen=True, slots=True)
class Stage:
    """The memory of a run during one stage of a step.

    Attributes:
        name: Name of the stage.
        learner: Bytes on each GPU of the learner.
        engine: Bytes on each GPU of the engines.
        host: Bytes in CPU memory, of all nodes together.
    """

    name: str
    learner: Bytes
    engine: Bytes
    host: Bytes

    def on_gpu(self, gpu: int, placement: Placement) -> Bytes:
        """Return the bytes on one GPU, by purpose."""
        engines = {device for replica in placement.engine_devices for device in replica}
        sides = [self.learner] * (gpu in placement.learner_devices) + [self.engine] * (gpu in engines)
        return {name: side[name] for side in sides for name in side if side[name]}


def add_bytes(*parts: Bytes) -> Bytes:
    """Add bytes by purpose."""
    total: Bytes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total
