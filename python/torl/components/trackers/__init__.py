"""Trackers: further destinations of the metrics of a run."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from torl.components.trackers.tracker import Example as Example
from torl.components.trackers.tracker import Tracker as Tracker
from torl.components.trackers.tracker import TrackerFeed as TrackerFeed

TRACKERS: Final[Mapping[str, Callable[..., Tracker] | str]] = MappingProxyType(
    {
        "tensorboard": "torl.components.trackers.tensorboard:TensorBoard",
        "wandb": "torl.components.trackers.wandb:WeightsAndBiases",
        "trackio": "torl.components.trackers.wandb:Trackio",
        "mlflow": "torl.components.trackers.mlflow:MLflow",
    }
)
"""Trackers by the names that configurations use."""
