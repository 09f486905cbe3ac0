"""Trackers: further destinations of the metrics of a run."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from torl.trackers.base import Example as Example
from torl.trackers.base import Tracker as Tracker
from torl.trackers.feed import TrackerFeed as TrackerFeed

TRACKERS: Final[Mapping[str, Callable[..., Tracker] | str]] = MappingProxyType(
    {
        "tensorboard": "torl.trackers.tensorboard:TensorBoard",
        "wandb": "torl.trackers.wandb:WeightsAndBiases",
        "trackio": "torl.trackers.trackio:Trackio",
        "mlflow": "torl.trackers.mlflow:MLflow",
    }
)
"""Trackers by the names that configurations use."""
