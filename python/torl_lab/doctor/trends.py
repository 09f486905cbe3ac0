"""Robust statistics of short, noisy series: trends, spikes, and differences of distributions."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np

_SIGMA: Final = 1.4826  # of a median absolute deviation, for a normal distribution
_CERTAIN: Final = 3.0  # standard deviations, of a check that is repeated at every step
_SIGNIFICANT: Final = 1.645  # standard deviations, one-sided 5 %


def mann_kendall(values: Sequence[float]) -> float:
    """Return the standard score of Mann and Kendall's trend test (Mann 1945), with its correction for ties.

    Above 0 for rising values. 0 for fewer than four values, or constant ones.
    """
    count = len(values)
    if count < 4:
        return 0.0
    array = np.asarray(values, np.float64)
    score = sum(int(np.sign(array[index + 1 :] - array[index]).sum()) for index in range(count - 1))
    ties = np.unique(array, return_counts=True)[1]
    tied = int((ties * (ties - 1) * (2 * ties + 5)).sum())
    variance = (count * (count - 1) * (2 * count + 5) - tied) / 18
    if variance <= 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0


def is_rising(values: Sequence[float]) -> bool:
    """Whether values rise, at a one-sided significance of 5 %."""
    return mann_kendall(values) > _SIGNIFICANT


def exceeds(fraction: float, count: int, limit: float) -> bool:
    """Whether a fraction of `count` cases is above a limit by 3 standard deviations of chance, or is 1."""
    return fraction == 1 or fraction > limit + _CERTAIN * math.sqrt(limit * (1 - limit) / count)


def spikes(values: Sequence[float], factor: float, window: int) -> list[int]:
    """Return the indices of values above `factor` times the median of the `window` values before them."""
    found = []
    for index in range(window, len(values)):
        center = median(values[index - window : index])
        if values[index] > factor * center > 0:
            found.append(index)
    return found


def robust_score(value: float, reference: Sequence[float]) -> float:
    """Return the distance of a value to a reference's median, in standard deviations by its median deviation."""
    center = median(reference)
    deviation = _SIGMA * median(abs(each - center) for each in reference)
    return (value - center) / deviation if deviation > 0 else math.inf * (value > center) if value != center else 0.0


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the statistic and the asymptotic p-value of the two-sample test of Kolmogorov and Smirnov."""
    x, y = np.sort(np.asarray(one, np.float64)), np.sort(np.asarray(other, np.float64))
    points = np.concatenate([x, y])
    statistic = float(
        np.abs(np.searchsorted(x, points, "right") / len(x) - np.searchsorted(y, points, "right") / len(y)).max()
    )
    scaled = statistic * math.sqrt(len(x) * len(y) / (len(x) + len(y)))
    if scaled < 0.2:
        return statistic, 1.0
    terms = (2 * (-1) ** (index - 1) * math.exp(-2 * index**2 * scaled**2) for index in range(1, 101))
    return statistic, min(1.0, max(0.0, sum(terms)))
