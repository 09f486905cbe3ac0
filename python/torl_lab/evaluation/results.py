"""The results of an evaluation: accuracies and use of code by problem, read from its trajectory files.

Axis `_P`: the problems of a set.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

from torl.base.errors import RecordError
from torl.base.types import ScoredGroup
from torl.run.records import metric_names as names
from torl.run.records.dynamics import training_dynamics
from torl_lab.evaluation.cells import EvaluationCell, cells_in, models_in, read_problem_ids
from torl_lab.evaluation.estimates import (
    Estimate,
    Values,
    difference_interval,
    estimates,
    majority_at_k,
    pass_at_k,
    sample_interval,
)

CODE_USE = (names.CODE_RATIO, names.CODE_BLOCKS_PER_RESPONSE, names.CALLS_PER_TRAJECTORY, names.RESPONSE_TOKENS)
"""The metrics of the use of code, as in training."""


@dataclass(frozen=True, slots=True)
class CodeUse:
    """The use of code in the responses to one set, without problems that were not played."""

    means: Mapping[str, float]
    """Means over responses, by the metrics `CODE_USE`."""
    with_code_P: Values
    """Fraction of the responses with code, shape (P,)."""
    accuracy_P: Values
    """Accuracy of the same responses, shape (P,)."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The results of a model with a maximum number of tool calls."""

    model: str
    calls: int
    measures: dict[str, dict[str, Values]]
    """Values by measure and set. Problems with prompts that are too long count as 0."""
    problems: dict[str, tuple[str, ...]]
    """Ids of the problems by set, in the order of the values."""
    code: dict[str, dict[str, CodeUse]]
    """Use of code by measure ("greedy" or "avg@n") and set."""
    for_model: bool = False
    """Whether intervals are of this model on exactly these problems, where several samples show its variance."""

    @property
    def label(self) -> str:
        """Label in tables."""
        return f"{self.model}, N = {self.calls}"

    def estimates(self, measure: str) -> dict[str, Estimate]:
        """Return the mean of each set, and of all, in a measure."""
        if not self.has_sample_intervals(measure):
            return estimates(self.measures[measure])
        return estimates(self.measures[measure], partial(sample_interval, samples=_samples(measure)))

    def has_sample_intervals(self, measure: str) -> bool:
        """Whether intervals of a measure are about new samples, not about new problems."""
        return self.for_model and _samples(measure) > 1


def read_results(
    output: Path, models: Sequence[str] = (), sets: Sequence[str] = (), *, for_model: bool = False
) -> list[Variant]:
    """Read the results of an evaluation, sorted by model and number of calls.

    Args:
        output: Output directory of the evaluation.
        models: Models that come first, in this order. The others follow by name.
        sets: Sets that come first, in this order. The others follow in the order of the papers.
        for_model: Whether intervals are of the models on exactly these problems (`Variant.for_model`).

    Raises:
        RecordError: The directory has no results, a file is damaged, or a set is incomplete.
    """
    variants: dict[tuple[str, int], Variant] = {}
    for directory in models_in(output):
        for cell in sorted(cells_in(directory), key=lambda cell: _rank(cell.set_name, sets)):
            key = directory.name, cell.calls
            _add(variants.setdefault(key, Variant(*key, {}, {}, {}, for_model)), cell)
    if not variants:
        raise RecordError(f"{output}: contains no evaluation")
    return [variants[key] for key in sorted(variants, key=lambda key: (_rank(key[0], models), key))]


def shared_problems(output: Path) -> list[str]:
    """Return a note for each pair of sets with common problems, which count twice in a mean over sets."""
    ids = {
        cell.set_name: frozenset().union(*read_problem_ids(cell.directory, cell.set_name))
        for directory in models_in(output)
        for cell in cells_in(directory)
    }
    common = [(one, other, len(ids[one] & ids[other])) for one, other in combinations(ids, 2)]
    return [f"{one} and {other} share {count} of their problem ids" for one, other, count in common if count]


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
        place = {problem: index for index, problem in enumerate(other.problems[name])}
        if place.keys() != set(variant.problems[name]):
            raise RecordError(f"{name}: {variant.label} and {other.label} were played on different problems")
        # A problem that is too long for one model alone is the last of its values, so their orders differ.
        others_P = others_P[[place[problem] for problem in variant.problems[name]]]
        pairs[name] = values_P - others_P
    return estimates(pairs, difference_interval)


def tool_differences(variants: Sequence[Variant]) -> Iterator[tuple[Variant, Variant]]:
    """Yield each variant with tool calls, together with the same model without."""
    without = {each.model: each for each in variants if each.calls == 0}
    yield from ((each, without[each.model]) for each in variants if each.calls > 0 and each.model in without)


def model_differences(variants: Sequence[Variant], baseline: str | None) -> Iterator[tuple[Variant, Variant]]:
    """Yield each variant of another model, together with the baseline with the same number of calls."""
    of_baseline = {each.calls: each for each in variants if each.model == baseline}
    yield from (
        (each, of_baseline[each.calls]) for each in variants if each.model != baseline and each.calls in of_baseline
    )


def _samples(measure: str) -> int:
    """Return the number of samples of each problem in avg@n; 1 for other measures."""
    kind, _, samples = measure.partition("@")
    return int(samples) if kind == "avg" else 1


def _rank(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def _add(variant: Variant, cell: EvaluationCell) -> None:
    """Add the results of a cell to its variant."""
    groups = {group.prompt.problem.id: group for group in cell.file.read()}
    played, too_long = read_problem_ids(cell.directory, cell.set_name)
    if missing := [problem for problem in played if problem not in groups]:
        count = len(missing)
        raise RecordError(f"{cell.file.path}: {count} problems are not played yet: run the same command again")
    ordered = [groups[problem] for problem in played]
    variant.problems[cell.set_name] = (*played, *too_long)
    measures = dict(_measures(cell.mode, ordered))
    for measure, values in measures.items():
        values_P = np.append(values, np.zeros(len(too_long)))
        variant.measures.setdefault(measure, {})[cell.set_name] = values_P
    variant.code.setdefault(next(iter(measures)), {})[cell.set_name] = _code_use(ordered)


def _measures(mode: str, groups: Sequence[ScoredGroup]) -> Iterator[tuple[str, Sequence[float]]]:
    accuracies = [group.accuracy for group in groups]
    if mode == "greedy":
        yield "greedy", accuracies
        return
    samples = len(groups[0].members)
    grades = [[member.grade for member in group.members] for group in groups]
    correct = [[grade.correct for grade in each] for each in grades]
    answers = [[grade.answer for grade in each] for each in grades]
    yield f"avg@{samples}", accuracies
    for k in _powers_of_two(samples):
        if k > 2:  # of two answers that differ, none is more frequent
            yield f"maj@{k}", [majority_at_k(*each, k) for each in zip(answers, correct, strict=True)]
    for k in _powers_of_two(samples):
        yield f"pass@{k}", [pass_at_k(samples, sum(each), k) for each in correct]


def _code_use(groups: Sequence[ScoredGroup]) -> CodeUse:
    metrics = training_dynamics(groups)
    with_code = [[member.trajectory.has_code for member in group.members] for group in groups]
    return CodeUse(
        {name: metrics[name] for name in CODE_USE},
        np.array([fmean(each) for each in with_code]),
        np.array([group.accuracy for group in groups]),
    )


def _powers_of_two(samples: int) -> list[int]:
    """Return the powers of two from 2 below the number of samples, and that number. pass@1 is the average."""
    powers = [2**power for power in range(1, samples.bit_length()) if 2**power < samples]
    return [*powers, samples] if samples > 1 else []
