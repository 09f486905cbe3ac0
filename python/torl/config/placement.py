"""The section of devices."""

from typing import Literal, Self

from pydantic import model_validator

from torl.options import NonNegativeInt, PositiveInt, Section


class PlacementConfig(Section):
    """The devices of the learner and the engines: GPUs, or cores on a machine without them.

    Learner and engines on the same devices are *colocated* and take turns; on separate devices they are *split* and
    work at the same time. `docs/gpus.md` explains the defaults.
    """

    gpus: Literal["all"] | PositiveInt | tuple[NonNegativeInt, ...] = "all"
    """GPUs of the run: all visible ones, a number of them, or a list of indices."""
    learner: tuple[NonNegativeInt, ...] | None = None
    """Indices of the learner's devices: GPUs, or cores on a machine without GPUs. Unset derives them."""
    engine: tuple[NonNegativeInt, ...] | None = None
    """Indices of the engines' devices: either the learner's, or none of these. Unset derives them."""
    check_memory: bool = True
    """Refuse to start a run that needs more memory than its GPUs have, according to `torl plan`."""

    @model_validator(mode="after")
    def _same_or_apart(self) -> Self:
        for name in ("gpus", "learner", "engine"):
            devices = getattr(self, name)
            if isinstance(devices, tuple) and (not devices or len(set(devices)) < len(devices)):
                raise ValueError(f"{name} must name at least one device, and each only once")
        if self.learner is None or self.engine is None:
            return self
        both = set(self.learner) & set(self.engine)
        if both and set(self.learner) != set(self.engine):
            raise ValueError(
                f"learner and engine share only {sorted(both)}: use the same devices for both "
                "(colocated), or separate devices (split)"
            )
        return self
