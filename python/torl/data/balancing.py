"""Which problems of a set are worth training on: LIMR's score, and a choice that is balanced. Axis `_K`: epochs."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from torl.types import Problem

Stratum = TypeVar("Stratum", bound=Hashable)


def learning_impact(accuracies: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """LIMR's learning-impact measure of each problem: how its accuracy over the epochs follows the mean of all.

    s = 1 - sum_k (r^k - m^k)^2 / sum_k (1 - m^k)^2, with the problem's accuracy r^k in its k-th epoch and the mean m^k
    of all problems' (Li et al. 2025, equation 3). A problem that was met in fewer epochs is compared in these alone.
    Where the mean was 1 throughout, a problem scores 1.

    Args:
        accuracies: of each problem, in the order of its epochs; at least one.
    """
    longest = max((len(values_K) for values_K in accuracies.values()), default=0)
    mean_K = np.array(
        [np.mean([values_K[k] for values_K in accuracies.values() if len(values_K) > k]) for k in range(longest)]
    )
    scores = {}
    for problem, values_K in accuracies.items():
        own_K = np.asarray(values_K)
        followed_K = mean_K[: len(own_K)]
        largest = float(((1 - followed_K) ** 2).sum())
        scores[problem] = 1.0 - float(((own_K - followed_K) ** 2).sum()) / largest if largest else 1.0
    return scores


def allocate(sizes: Mapping[Stratum, int], count: int) -> dict[Stratum, int]:
    """How many to take of each cell so that all give the same, as far as they have it: `count` in all, or everything.

    A cell that could give more gives at most one less than any other; what cannot be divided goes to the first cells.
    """
    given = dict.fromkeys(sizes, 0)
    left = min(count, sum(sizes.values()))
    while left:
        open_cells = [cell for cell in sizes if given[cell] < sizes[cell]]
        each = max(1, left // len(open_cells))
        for cell in open_cells:
            more = min(each, sizes[cell] - given[cell], left)
            given[cell] += more
            left -= more
    return given


def balanced_sample(
    problems: Sequence[Problem],
    count: int,
    stratum_of: Callable[[Problem], Hashable],
    score_of: Callable[[Problem], float],
    seed: int = 0,
) -> list[Problem]:
    """`count` problems, as many of each cell as of every other, the best of each; in the order that they were given.

    Problems of the same score are taken in an order that depends on the seed and their ids alone.
    """

    def rank(problem: Problem) -> tuple[float, bytes]:
        return -score_of(problem), hashlib.blake2b(f"{seed}/{problem.id}".encode(), digest_size=8).digest()

    cells: dict[Hashable, list[Problem]] = {}
    for problem in problems:
        cells.setdefault(stratum_of(problem), []).append(problem)
    numbers = allocate({cell: len(cells[cell]) for cell in sorted(cells, key=repr)}, count)
    taken = {problem.id for cell, members in cells.items() for problem in sorted(members, key=rank)[: numbers[cell]]}
    return [problem for problem in problems if problem.id in taken]


def bin_of(pass_rate: float, bins: int) -> int:
    """The bin of a pass rate: 0 for never solved, `bins` + 1 for always solved, 1 to `bins` evenly between."""
    if pass_rate in (0.0, 1.0):
        return 0 if pass_rate == 0.0 else bins + 1
    return 1 + min(bins - 1, int(pass_rate * bins))
