"""What is said of the responses to a set of problems, and how sure it is. Axis `_P`: the problems of a set."""

from collections import Counter
from collections.abc import Sequence
from math import comb
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[np.float64]
"""One number for each problem of a set, shape (P,), between 0 and 1."""
Interval: TypeAlias = tuple[float, float]

RESAMPLES = 10_000
CONFIDENCE = 0.95
_ROWS_AT_ONCE = 1_000  # of resamples: bounds the memory that large sets take


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased estimate of pass@k: the share of all k of the samples that hold a correct one.

    1 - C(n - c, k) / C(n, k) for n samples of which c are correct (Chen et al. 2021, equation 1). 0 for k = 0.

    Raises:
        ValueError: not 0 <= correct <= samples, or not 0 <= k <= samples.
    """
    if not 0 <= correct <= samples or not 0 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct ones is not defined")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def majority(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """maj@n: whether the most frequent answer of n responses is correct; where several are, the share that is.

    All correct answers are one answer, for each equals the reference; others are the same if their texts are. A
    response without an answer has no vote.
    """
    votes: Counter[str | None] = Counter()
    for answer, right in zip(answers, correct, strict=True):
        if right or answer is not None:
            votes[None if right else answer] += 1  # None: the correct one
    most = max(votes.values(), default=0)
    elected = [answer for answer, count in votes.items() if count == most]
    return elected.count(None) / len(elected) if elected else 0.0


def mean_over_sets(sets: Sequence[Values]) -> float:
    """The mean of the sets' means: each set counts the same, however many problems it has, as in the papers."""
    return float(np.mean([values_P.mean() for values_P in sets]))


def bootstrap(sets: Sequence[Values], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """A 95 % percentile interval of `mean_over_sets`: the problems of each set are drawn again with replacement.

    For differences, give the difference of each problem: the comparison is paired then.
    """
    chance = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for values_P in sets:
        size = len(values_P)
        for start in range(0, resamples, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, resamples - start)
            drawn = chance.multinomial(size, np.full(size, 1 / size), size=rows)
            means[start : start + rows] += drawn @ values_P / size
    low, high = np.quantile(means / len(sets), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
