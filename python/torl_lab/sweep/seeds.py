"""Means over seeds with 95 % confidence intervals, and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Final

from torl.run.display.series import half_width

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
    if len(means) > 1:
        return SeedMean(
            fmean(means), _STUDENT[min(len(means) - 1, len(_STUDENT)) - 1] * stdev(means) / sqrt(len(means))
        )
    (values,) = (list(of_seed.values()) for of_seed in accuracies.values())
    return SeedMean(means[0], half_width(values))


def difference_over_seeds(accuracies: Accuracies, baseline: Accuracies) -> SeedMean | None:
    """Return the mean difference from the baseline, paired by seed and problem; None without a common seed.

    Args:
        accuracies: Accuracies of each seed.
        baseline: Accuracies of the baseline on the same problems.
    """
    seeds: Sequence[int] = [seed for seed in accuracies if seed in baseline]
    pairs = {
        seed: {
            problem: value - baseline[seed][problem]
            for problem, value in accuracies[seed].items()
            if problem in baseline[seed]
        }
        for seed in seeds
    }
    pairs = {seed: values for seed, values in pairs.items() if values}
    return mean_over_seeds(pairs) if pairs else None
