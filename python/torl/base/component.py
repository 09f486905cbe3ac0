"""The base class of the components that a run starts: tools, rewards, environments and agents."""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path

from torl.base.guard import Guarded, InvalidResultError, describe, guarded
from torl.base.runtime.cluster import Cluster, LocalCluster


def _ignore_progress(stage: str, fraction: float) -> None:
    return


def _check_metrics(metrics: object) -> None:
    if not isinstance(metrics, Mapping) or not all(isinstance(value, Real) for value in metrics.values()):
        raise InvalidResultError(f"expected a mapping of names to numbers, got {describe(metrics)}")


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run that a component is started in. The defaults describe a component that is used alone.

    Attributes:
        cluster: Cluster of the run. A component that does not use its nodes runs in the controller.
        progress: Callback for a slow start: `progress(stage, fraction)`, with the fraction done from 0 to 1.
            Thread-safe.
        seed: Random seed of the run.
        directory: Directory for files that the component writes, such as logs.
    """

    cluster: Cluster = field(default_factory=LocalCluster)
    progress: Callable[[str, float], object] = _ignore_progress
    seed: int = 0
    directory: Path = Path()


class Component(Guarded, ABC):
    """A part of a run that is started, checked and closed. One instance serves the whole run.

    All methods are optional. A run calls `start` once, before the component is used; `check` after each training step;
    `metrics` when it writes a record; and `close` at the end, also if `start` failed. The parameters of `__init__` are
    the options of the component in a configuration.

    Every method is guarded: an exception or an invalid result becomes a `ComponentError`, which names the component,
    the call and the line of code. In an episode, an error of a tool, an environment or an agent fails only the episode.
    Failed episodes are dropped and counted, and `rollout.max_failed_fraction` stops the run. All other errors stop the
    run. A `TorlError` that a component raises keeps its own meaning.
    """

    @guarded()
    async def start(self, context: RunContext) -> None:
        """Allocate the resources that the component needs, such as processes and connections.

        Args:
            context: Run that the component is part of.

        Raises:
            TorlError: The component cannot be used. The run stops with this message.
        """
        return

    @guarded()
    async def check(self) -> None:
        """Verify that the component still works.

        Raises:
            TorlError: The component has failed. The run stops with this message.
        """
        return

    @guarded()
    async def close(self) -> None:
        """Release the resources of `start`. Also called if `start` failed, perhaps halfway."""
        return

    @guarded(_check_metrics)
    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, by name, for the metrics of the run."""
        return {}
