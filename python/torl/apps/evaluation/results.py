"""The results of an evaluation: statistics of graded responses with confidence intervals.

Axis `_P`: the problems of a set.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from torl.apps.evaluation.cells import EvaluationCell, cells_in, models_in, read_problem_ids
from torl.errors import RecordError
from torl.types import ScoredGroup

AVERAGE = "average"
Values: TypeAlias = npt.NDArray[np.float64]
"""One number between 0 and 1 for each problem of a set, shape (P,)."""
Interval: TypeAlias = tuple[float, float]
"""The lower and upper bound of a 95 % confidence interval."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_BATCH_SIZE = 1_000  # resamples per batch, to bound the memory of large sets


@dataclass(frozen=True, slots=True)
class Variant:
    """The results of a model with a maximum number of tool calls."""

    model: str
    calls: int
    measures: Mapping[str, Mapping[str, Values]]
    """Values by measure and set. Problems with prompts that are too long count as 0."""

    @property
    def label(self) -> str:
        """Label in tables."""
        return f"{self.model}, N = {self.calls}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems or sets with its 95 % confidence interval."""

    value: float
    interval: Interval


def read_results(output: Path, models: Sequence[str] = (), sets: Sequence[str] = ()) -> list[Variant]:
    """Read the results of an evaluation, sorted by model and number of calls.

    Args:
        output: Output directory of the evaluation.
        models: Models that come first, in this order. The others follow by name.
        sets: Sets that come first, in this order. The others follow in the order of the papers.

    Raises:
        RecordError: The directory has no results, a file is damaged, or a set is incomplete.
    """
    variants: dict[tuple[str, int], dict[str, dict[str, Values]]] = {}
    for directory in models_in(output):
        for cell in sorted(cells_in(directory), key=lambda cell: _rank(cell.set_name, sets)):
            measures = variants.setdefault((directory.name, cell.calls), {})
            for measure, values_P in _measures(cell):
                measures.setdefault(measure, {})[cell.set_name] = values_P
    if not variants:
        raise RecordError(f"{output}: contains no evaluation")
    keys = sorted(variants, key=lambda key: (_rank(key[0], models), key))
    return [Variant(model, calls, variants[model, calls]) for model, calls in keys]


def shared_problems(output: Path) -> list[str]:
    """Return a note for each pair of sets with common problems, which count twice in a mean over sets."""
    ids = {
        cell.set_name: frozenset().union(*read_problem_ids(cell.directory, cell.set_name))
        for directory in models_in(output)
        for cell in cells_in(directory)
    }
    common = [(one, other, len(ids[one] & ids[other])) for one, other in combinations(ids, 2)]
    return [f"{one} and {other} share {count} of their problem ids" for one, other, count in common if count]


def _rank(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def estimates(sets: Mapping[str, Values]) -> dict[str, Estimate]:
    """Return the mean of each set and, for several sets, their mean under `AVERAGE`."""
    means = {name: _estimate([values_P]) for name, values_P in sets.items()}
    return means | ({AVERAGE: _estimate(list(sets.values()))} if len(sets) > 1 else {})


def overall(found: Mapping[str, Estimate]) -> Estimate:
    """Return the mean over the sets, or the mean of the only set."""
    return found[AVERAGE] if AVERAGE in found else next(iter(found.values()))


def difference(variant: Variant, other: Variant, measure: str) -> dict[str, Estimate]:
    """Return the improvement of `variant` over `other` on their common sets, paired by problem.

    Raises:
        RecordError: A set has different problems in the two.
    """
    pairs: dict[str, Values] = {}
    for name, values_P in variant.measures[measure].items():
        others_P = other.measures.get(measure, {}).get(name)
        if others_P is None:
            continue
        if len(others_P) != len(values_P):
            raise RecordError(f"{name}: {variant.label} and {other.label} were played on different problems")
        pairs[name] = values_P - others_P
    return estimates(pairs) if pairs else {}


def tool_differences(variants: Sequence[Variant]) -> Iterator[tuple[Variant, Variant]]:
    """Yield each variant with tool calls, together with the same model without."""
    without = {each.model: each for each in variants if each.calls == 0}
    yield from ((each, without[each.model]) for each in variants if each.calls > 0 and each.model in without)


def _estimate(sets: Sequence[Values]) -> Estimate:
    return Estimate(mean_over_sets(sets), bootstrap(sets))


def _measures(cell: EvaluationCell) -> Iterator[tuple[str, Values]]:
    groups = {group.prompt.problem.id: group for group in cell.file.read()}
    played, too_long = read_problem_ids(cell.directory, cell.set_name)
    if missing := [problem for problem in played if problem not in groups]:
        raise RecordError(f"{cell.file.path}: {len(missing)} problems are not played yet: run the same command again")
    ordered = [groups[problem] for problem in played]
    unplayed = np.zeros(len(too_long))
    if cell.mode == "greedy":
        yield "greedy", np.append([group.accuracy for group in ordered], unplayed)
        return
    samples = len(ordered[0].members)
    correct = [sum(member.grade.correct for member in group.members) for group in ordered]
    yield f"avg@{samples}", np.append(np.array(correct) / samples, unplayed)
    yield f"maj@{samples}", np.append([_majority(group) for group in ordered], unplayed)
    for k in _powers_of_two(samples):
        yield f"pass@{k}", np.append([pass_at_k(samples, count, k) for count in correct], unplayed)


def _majority(group: ScoredGroup) -> float:
    grades = [member.grade for member in group.members]
    return majority([grade.answer for grade in grades], [grade.correct for grade in grades])


def _powers_of_two(samples: int) -> list[int]:
    """Return the powers of two from 2 below the number of samples, and that number. pass@1 is the average."""
    powers = [2**power for power in range(1, samples.bit_length()) if 2**power < samples]
    return [*powers, samples] if samples > 1 else []


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


def mean_over_sets(sets: Sequence[Values]) -> float:
    """Return the mean of the sets' means. As in the papers, sets have equal weight regardless of their size."""
    return float(np.mean([values_P.mean() for values_P in sets]))


def bootstrap(sets: Sequence[Values], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return a 95 % percentile bootstrap interval of `mean_over_sets` over the problems of each set.

    For a paired comparison, pass the difference of each problem.
    """
    generator = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for values_P in sets:
        size = len(values_P)
        for start in range(0, resamples, _BATCH_SIZE):
            rows = min(_BATCH_SIZE, resamples - start)
            drawn = generator.multinomial(size, np.full(size, 1 / size), size=rows)
            means[start : start + rows] += drawn @ values_P / size
    low, high = np.quantile(means / len(sets), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
