"""Which samples each optimizer step of a training step gets. No torch."""

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np

from torl.types import TrainingSample


def mini_batches(samples: Sequence[TrainingSample], epochs: int, parts: int, key: Hashable) -> list[list[int]]:
    """For each optimizer step the indices of its samples, in ascending order.

    Every epoch holds each sample once. The samples of an episode stay together, and the episodes are cut into `parts`
    whose sizes differ by one at most (as many parts as there are episodes, if those are fewer). The order depends on
    `key` and the epoch only.
    """
    episodes = episodes_of(samples)
    parts = min(parts, len(episodes))
    batches = []
    for epoch in range(epochs):
        digest = hashlib.blake2b(repr((key, epoch)).encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(digest)).permutation(len(episodes))
        for part in np.array_split(order, parts) if parts else []:
            batches.append(sorted(index for episode in part for index in episodes[episode]))
    return batches


def episodes_of(samples: Sequence[TrainingSample]) -> list[list[int]]:
    """The indices of the samples of each episode, in order."""
    episodes: dict[Hashable, list[int]] = {}
    for index, sample in enumerate(samples):
        key = ("alone", index) if sample.episode is None else sample.episode
        episodes.setdefault(key, []).append(index)
    return list(episodes.values())
