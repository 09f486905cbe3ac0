"""The section `health`: the doctor's checks while a run trains."""

from typing import Literal

from torl.options import PositiveInt, Section


class HealthConfig(Section):
    """The checks of `torl doctor` on the run's own records while it trains."""

    mode: Literal["off", "warn", "stop"] = "warn"
    """Effect of a diagnosis: "warn" prints it, and "stop" ends the run after a checkpoint, from which it can be
    resumed. "off" runs no check."""
    every_steps: PositiveInt = 1
    """Interval of the checks, in steps. All steps in between are examined."""
    ignore: tuple[str, ...] = ()
    """Names of diseases that are not checked, also by `torl doctor`."""
