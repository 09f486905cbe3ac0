"""Statistics of graded responses: estimates with confidence intervals, pass@k, maj@k, correlations, means over seeds.

Axis `_P`: the problems of a set.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import atanh, comb, sqrt, tanh
from statistics import fmean, stdev
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from torl.run.display.series import half_width, rank_correlation

AVERAGE = "average"
Values: TypeAlias = npt.NDArray[np.float64]
"""One number between 0 and 1 for each problem of a set, shape (P,)."""
Interval: TypeAlias = tuple[float, float]
"""The lower and upper bound of a 95 % confidence interval."""

_MAX_SUBSETS: Final = 1_000
_QUANTILE: Final = 1.959964  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems or sets with its 95 % confidence interval."""

    value: float
    interval: Interval


def accuracy_interval(values_P: Values) -> Interval:
    """Return the Wilson score interval (1927) of a mean over problems, for new problems of the same kind.

    It is too wide for the same problems with new samples (`sample_interval`).

    Means of several samples vary less than zeros and ones. Their interval is that of as many problems with zeros and
    ones as give the same variance of the mean (Korn and Graubard 1998). This variance includes one more problem, which
    varies like zeros and ones, so that values that happen to be equal have an interval too.
    """
    mean, size = float(values_P.mean()), float(len(values_P))
    binary_variance = mean * (1 - mean)
    if binary_variance > 0:
        size *= (size + 1) / (size * float(values_P.var()) / binary_variance + 1)
    return _wilson_interval(mean, size)


def sample_interval(values_P: Values, samples: int) -> Interval:
    """Return the Wilson score interval of a model's mean on exactly these problems, for new samples.

    Each problem is a stratum: only the variance within problems counts. It includes one more problem with the mean
    accuracy, so that problems whose samples are all equal have an interval too.

    Args:
        values_P: Fraction of correct samples of each problem, shape (P,).
        samples: Samples of each problem, at least 2: a single one has no variance.
    """
    mean, size = float(values_P.mean()), float(len(values_P) * samples)
    binary_variance = mean * (1 - mean)
    if binary_variance > 0:
        within = float((values_P * (1 - values_P)).sum()) / (samples - 1) + binary_variance / samples
        size = binary_variance * len(values_P) ** 2 / within
    return _wilson_interval(mean, size)


def _wilson_interval(mean: float, size: float) -> Interval:
    """Return the interval of a mean of `size` zeros and ones."""
    center = mean + _QUANTILE**2 / (2 * size)
    width = _QUANTILE * sqrt(mean * (1 - mean) / size + (_QUANTILE / (2 * size)) ** 2)
    low, high = ((center + sign * width) / (1 + _QUANTILE**2 / size) for sign in (-1, 1))
    return max(min(low, mean), 0.0), min(max(high, mean), 1.0)  # which rounding may just miss


def difference_interval(values_P: Values) -> Interval:
    """Return the adjusted Wald interval of a mean of paired differences, which are between -1 and 1.

    It is that of a normal distribution with two more problems (Agresti and Min 2005): one without a difference, and two
    halves of one with a difference up and down. This difference is 1 for zeros and ones. For means of several samples,
    it is the smallest difference of any problem.
    """
    unit = float(np.abs(values_P[values_P != 0]).min(initial=1.0))
    size = len(values_P) + 2
    mean = float(values_P.sum()) / size
    variance = (float(np.square(values_P).sum()) + unit**2) / size - mean**2
    width = _QUANTILE * sqrt(variance / size)
    return max(mean - width, -1.0), min(mean + width, 1.0)


def estimates(
    sets: Mapping[str, Values], interval: Callable[[Values], Interval] = accuracy_interval
) -> dict[str, Estimate]:
    """Return the mean of each set and, for several sets, their mean under `AVERAGE`.

    As in the papers, sets have equal weight regardless of their size. The distances of the sets' bounds from their
    means are added as independent errors, below and above the mean (Zou and Donner 2008).

    Args:
        sets: Values of each set.
        interval: Function that returns the interval of a set: `difference_interval` for differences.
    """
    found = {name: Estimate(float(values_P.mean()), interval(values_P)) for name, values_P in sets.items()}
    if len(found) < 2:
        return found
    value = fmean(each.value for each in found.values())
    below = sqrt(sum((each.value - each.interval[0]) ** 2 for each in found.values())) / len(found)
    above = sqrt(sum((each.interval[1] - each.value) ** 2 for each in found.values())) / len(found)
    return {**found, AVERAGE: Estimate(value, (value - below, value + above))}


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased estimate of pass@k: the fraction of k-subsets of the samples with a correct one.

    1 - C(n - c, k) / C(n, k) for n samples with c correct ones (Chen et al. 2021, equation 1). 0 for k = 0.

    Raises:
        ValueError: `correct` or `k` is not between 0 and `samples`.
    """
    if not 0 <= correct <= samples or not 0 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct ones is not defined")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def majority(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Return maj@n: whether the most frequent answer is correct, or the correct fraction of tied answers.

    All correct answers count as one answer, because each equals the reference. Wrong answers are compared by text.
    Responses without an answer do not vote.
    """
    votes: Counter[str | None] = Counter()
    for answer, right in zip(answers, correct, strict=True):
        if right or answer is not None:
            votes[None if right else answer] += 1  # None: the correct answer
    max_votes = max(votes.values(), default=0)
    elected = [answer for answer, count in votes.items() if count == max_votes]
    return elected.count(None) / len(elected) if elected else 0.0


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
    """Return maj@k: the mean of `majority` over the k-subsets of the samples.

    All subsets count if there are at most a thousand, else a thousand random ones, the same in every call.
    """
    samples = len(correct)
    if comb(samples, k) <= _MAX_SUBSETS:
        subsets = list(combinations(range(samples), k))
    else:
        generator = random.Random(0)
        subsets = [tuple(generator.sample(range(samples), k)) for _ in range(_MAX_SUBSETS)]
    return fmean(majority([answers[i] for i in subset], [correct[i] for i in subset]) for subset in subsets)


def correlation(x_P: Values, y_P: Values) -> Estimate | None:
    """Return Spearman's rank correlation over problems; None for constant values or fewer than four problems.

    The interval is that of Bonett and Wright (2000): Fisher's transformation with the variance (1 + r² / 2) / (P - 3).
    """
    found = rank_correlation(x_P.tolist(), y_P.tolist()) if len(x_P) > 3 else None
    if found is None:
        return None
    if abs(found) >= 1:
        return Estimate(found, (found, found))
    width = _QUANTILE * sqrt((1 + found**2 / 2) / (len(x_P) - 3))
    return Estimate(found, (tanh(atanh(found) - width), tanh(atanh(found) + width)))


# Student's t for 95 % by the degrees of freedom; more have that of nine, which is wider than theirs.
_STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

Accuracies = Mapping[int, Mapping[str, float]]
"""Accuracy of each problem by its id, by seed."""


@dataclass(frozen=True, slots=True)
class SeedMean:
    """A mean with half of the width of its interval; None for one seed with one problem."""

    value: float
    half_width: float | None

    def __str__(self) -> str:
        width = "" if self.half_width is None else f" ± {100 * self.half_width:.1f}"
        return f"{100 * self.value:.1f}{width}"

    @property
    def verdict(self) -> str:
        """The meaning of a difference: "helps", "harms" or "no difference seen"."""
        if self.half_width is None or abs(self.value) <= self.half_width:
            return "no difference seen"
        return "helps" if self.value > 0 else "harms"


def mean_over_seeds(accuracies: Accuracies) -> SeedMean:
    """Return the mean accuracy.

    Its interval covers other seeds: Student's t over the means of the seeds. With one seed it covers other problems
    only, by the normal distribution.
    """
    means = [fmean(of_seed.values()) for of_seed in accuracies.values()]
    if len(means) == 1:
        (values,) = accuracies.values()
        return SeedMean(means[0], half_width(list(values.values())))
    quantile = _STUDENT[min(len(means) - 1, len(_STUDENT)) - 1]
    return SeedMean(fmean(means), quantile * stdev(means) / sqrt(len(means)))


def difference_over_seeds(accuracies: Accuracies, baseline: Accuracies) -> SeedMean | None:
    """Return the mean difference from the baseline, paired by seed and problem; None without a common seed."""
    pairs: dict[int, dict[str, float]] = {}
    for seed, values in accuracies.items():
        for problem in values.keys() & baseline.get(seed, {}).keys():
            pairs.setdefault(seed, {})[problem] = values[problem] - baseline[seed][problem]
    return mean_over_seeds(pairs) if pairs else None
