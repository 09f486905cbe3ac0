"""Trackers: further destinations of the metrics of a run."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from torl.components.trackers.tracker import Example as Example
from torl.components.trackers.tracker import Tracker as Tracker
from torl.components.trackers.tracker import TrackerFeed as TrackerFeed

TRACKERS: Final[Mapping[str, Callable[..., Tracker] | str]] = MappingProxyType(
    {
        "tensorboard": "torl.components.trackers.backends:TensorBoard",
        "wandb": "torl.components.trackers.backends:WeightsAndBiases",
        "trackio": "torl.components.trackers.backends:Trackio",
        "mlflow": "torl.components.trackers.backends:MLflow",
    }
)
"""Trackers by the names that configurations use."""
