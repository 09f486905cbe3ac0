"""The optimizer steps of one training step: every sample once in each epoch, and one report of them all."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.base.types import TrainingSample
from torl.learner.optimizer_steps import combine_reports, explained_variance, mini_batches


def samples_of(*episodes: int | None) -> list[TrainingSample]:
    """A sample of each of these episodes."""
    arrays = (np.zeros(1, np.int32), np.zeros(1, np.bool_), np.zeros(1, np.float32))
    return [TrainingSample(*arrays, episode=episode) for episode in episodes]


def alone(count: int) -> list[TrainingSample]:
    """The given number of samples, each an episode alone."""
    return samples_of(*[None] * count)


@given(st.integers(0, 50), st.integers(1, 4), st.integers(1, 8), st.integers())
@settings(deadline=None)
def test_every_epoch_holds_each_sample_once(samples, epochs, parts, key) -> None:
    found = mini_batches(alone(samples), epochs, parts, key)
    cuts = min(samples, parts)
    assert len(found) == epochs * cuts
    for epoch in range(epochs):
        own = found[epoch * cuts : (epoch + 1) * cuts]
        assert sorted(index for part in own for index in part) == list(range(samples))
        assert max(map(len, own), default=0) - min(map(len, own), default=0) <= 1
    assert found == mini_batches(alone(samples), epochs, parts, key)
    assert found == mini_batches(samples_of(*range(samples)), epochs, parts, key)


@given(st.lists(st.integers(1, 3), max_size=12), st.integers(1, 5), st.integers())
@settings(deadline=None)
def test_the_samples_of_an_episode_stay_together(sizes, parts, key) -> None:
    samples = samples_of(*[episode for episode, size in enumerate(sizes) for _ in range(size)])
    found = mini_batches(samples, 1, parts, key)
    assert sorted(index for part in found for index in part) == list(range(len(samples)))
    taken = [{samples[index].episode for index in part} for part in found]
    assert sum(map(len, taken)) == len(sizes)
    assert max(map(len, taken), default=0) - min(map(len, taken), default=0) <= 1


def test_epochs_and_steps_have_orders_of_their_own() -> None:
    first, second = mini_batches(alone(40), 2, 2, (0, 3, "policy"))[::2]
    assert first != second
    assert mini_batches(alone(40), 1, 2, (0, 4, "policy"))[0] != first
    assert mini_batches(alone(3), 1, 1, 0) == [[0, 1, 2]]


def test_reports_are_averaged_summed_and_maximised() -> None:
    one = {"loss": 1.0, "tokens": 10, "logprob_gap_max": 0.5}
    other = {"loss": 3.0, "tokens": 6, "logprob_gap_max": 0.25}
    assert combine_reports([one, other]) == {"loss": 2.0, "tokens": 16, "logprob_gap_max": 0.5}
    assert combine_reports([one]) == one
    assert combine_reports([]) == {}


def test_explained_variance_by_hand() -> None:
    mask = np.array([False, True, True])
    sample = TrainingSample(
        np.zeros(3, np.int32),
        mask,
        np.zeros(3, np.float32),
        returns=np.array([9, 1, 3], np.float32),
        values=np.array([0, 1, 3], np.float32),
    )
    assert explained_variance([sample]) == 1
    assert explained_variance([replace(sample, values=np.array([0, 2, 2], np.float32))]) == 0
    half = replace(sample, values=np.array([0, 1.5, 2.5], np.float32))
    assert explained_variance([half, half]) == pytest.approx(0.75)
    biased = replace(sample, values=np.array([0, 2, 4], np.float32))  # right but for one number, added everywhere
    assert explained_variance([biased]) == 1
    assert explained_variance([replace(sample, returns=np.ones(3, np.float32))]) == 0
