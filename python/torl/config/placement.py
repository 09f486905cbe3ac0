"""Which devices of a machine do what."""

from typing import Literal, Self

from pydantic import model_validator

from torl.options import NonNegativeInt, PositiveInt, Section


class PlacementConfig(Section):
    """The devices of the learner and of the engines: the GPUs, or the cores of a machine that computes on them.

    Learner and engines on the same devices are *colocated* and take turns; on others they are *split*, and work at the
    same time. `docs/gpus.md` says how what is unset follows from the rest.
    """

    gpus: Literal["all"] | PositiveInt | tuple[NonNegativeInt, ...] = "all"
    """GPUs that the run takes: all that are visible, the first so many of them, or these, counted from 0."""
    learner: tuple[NonNegativeInt, ...] | None = None
    """Those of them that the learner trains on (cores, where there are no GPUs); follows from the rest when unset."""
    engine: tuple[NonNegativeInt, ...] | None = None
    """Those that the engines sample on: all of the learner's, or none of them."""

    check_memory: bool = True
    """Refuse to start a run that needs more memory than its GPUs have, by the ledger of `python -m torl.plan`."""

    @model_validator(mode="after")
    def _same_or_apart(self) -> Self:
        for name in ("gpus", "learner", "engine"):
            devices = getattr(self, name)
            if isinstance(devices, tuple) and (not devices or len(set(devices)) < len(devices)):
                raise ValueError(f"{name} must name at least one device, and each once")
        if self.learner is None or self.engine is None:
            return self
        both = set(self.learner) & set(self.engine)
        if both and set(self.learner) != set(self.engine):
            raise ValueError(
                f"learner and engine share {sorted(both)} and have others to themselves: give both the same devices "
                "(colocated), or each its own (split)"
            )
        return self
