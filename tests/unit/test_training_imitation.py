"""Imitation weights by hand, from trajectories to samples."""

import numpy as np
import pytest

from builders import call, failed, scored, trajectory
from torl.config import AlgorithmConfig
from torl.training.samples import training_samples, with_imitation
from torl.training.selection import mask_samples
from torl.types import TrainingSample

# Three prompt tokens; each turn samples one token, and each observation has two.
MEMBERS = [
    scored(trajectory("a", "b")),
    scored(trajectory("c", "d", calls=[call(outcome=failed())]), correct=False),
    scored(trajectory("e")),
]


def weights(imitation: object) -> list[list[float]]:
    algorithm = AlgorithmConfig.model_validate({"imitation": imitation})
    found = with_imitation(training_samples(MEMBERS), MEMBERS, algorithm)
    return [[] if each.imitation_weights is None else each.imitation_weights.tolist() for each in found]


def test_observations_are_imitated() -> None:
    expected = [0, 0, 0, 0, 0.25, 0.25, 0]
    assert weights({"name": "observations", "weight": 0.25}) == [expected, expected, [0, 0, 0, 0]]


def test_correct_responses_are_imitated() -> None:
    expected = [[0, 0, 0, 0.5, 0, 0, 0.5], [0] * 7, [0, 0, 0, 0.5]]
    assert weights({"name": "correct_responses", "weight": 0.5}) == expected


def test_custom_imitation_sees_outcomes() -> None:
    expected = [0, 0, 0, 0, 0.5, 0.5, 0]
    assert weights({"name": "custom_components:results", "weight": 0.5}) == [expected, [0] * 7, [0] * 4]


def test_no_imitation_by_default() -> None:
    assert weights(None) == [[], [], []]


@pytest.mark.parametrize("masked", [True, False])
def test_masked_trajectory_is_not_imitated(masked: bool) -> None:
    algorithm = AlgorithmConfig.model_validate({"imitation": "observations"})
    samples: list[TrainingSample] = with_imitation(training_samples(MEMBERS[:1]), MEMBERS[:1], algorithm)
    (found,) = mask_samples(samples, {"mine": np.array([masked])})
    assert found.imitation_weights is not None
    assert found.imitation_weights.any() != masked
