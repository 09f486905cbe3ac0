"""Which samples each optimizer step of a training step gets. No torch."""

import hashlib
from collections.abc import Hashable

import numpy as np


def mini_batches(samples: int, epochs: int, parts: int, key: Hashable) -> list[list[int]]:
    """For each optimizer step the indices of its samples, in ascending order.

    Every epoch holds each sample once, cut into `parts` whose sizes differ by one at most (as many parts as there are
    samples, if those are fewer). The order depends on `key` and the epoch only.
    """
    parts = min(parts, samples)
    batches = []
    for epoch in range(epochs):
        digest = hashlib.blake2b(repr((key, epoch)).encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(digest)).permutation(samples)
        batches += [sorted(part.tolist()) for part in np.array_split(order, parts)] if parts else []
    return batches
