"""Select training problems by learning impact and pass rate, balanced over difficulty and source."""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from torl.base.errors import DataError
from torl.base.types import Problem
from torl.components.data.problems import count_reasons
from torl.components.data.values import PASS_RATE
from torl_lab.curation.difficulty import learning_impact

Stratum = TypeVar("Stratum", bound=Hashable)

SCORE = "learning_impact"
"""Metadata field of the learning impact."""


@dataclass(frozen=True, slots=True)
class SelectOptions:
    """Options of the selection. None disables a criterion."""

    min_learning_impact: float | None = None
    """Minimum learning impact (LIMR: 0.6)."""
    pass_rate_range: tuple[float, float] | None = None
    """Minimum and maximum pass rate, inclusive."""
    count: int | None = None
    """Number of problems."""
    difficulty_bins: int = 10
    """Number of pass-rate bins between never and always solved, for balancing."""
    by_source: bool = True
    """Whether to balance over sources as well."""
    seed: int = 0


def select(
    problems: Sequence[Problem], options: SelectOptions, accuracies: dict[str, list[float]] | None = None
) -> tuple[list[Problem], dict[str, Any]]:
    """Return the selected problems in their original order, and the counts of rejected problems by reason.

    Args:
        problems: Problems, with pass rates for the pass-rate range and for balancing over difficulty.
        options: Criteria.
        accuracies: Accuracies in a run (`accuracies_of_run`), for the learning impact and for missing pass rates.

    Raises:
        DataError: No problem is left.
    """
    dropped: Counter[str] = Counter()
    if accuracies is not None:
        scores = learning_impact(accuracies)
        problems = [_scored(problem, scores, accuracies) for problem in problems]
    kept = []
    for problem in problems:
        if reason := _rejection_reason(problem, options):
            dropped[reason] += 1
        else:
            kept.append(problem)
    if not kept:
        hint = f"; they are in the column {PASS_RATE!r}, or --column {PASS_RATE}=COLUMN names another"
        hint = hint if dropped["no_pass_rate"] else ""
        raise DataError(f"no problem is left of {len(problems)}: {count_reasons(dropped)}{hint}")
    if options.count is not None and options.count < len(kept):
        dropped["beyond_count"] = len(kept) - options.count
        kept = balanced_sample(
            kept,
            options.count,
            lambda problem: _stratum_of(problem, options),
            lambda problem: _number(problem, SCORE) or 0.0,
            options.seed,
        )
    strata = Counter(_stratum_of(problem, options) for problem in kept)
    return kept, {
        "read": len(problems),
        "kept": len(kept),
        "dropped": dict(dropped),
        "strata": {_stratum_name(stratum, options): count for stratum, count in sorted(strata.items())},
    }


def _scored(problem: Problem, scores: dict[str, float], accuracies: dict[str, list[float]]) -> Problem:
    if problem.id not in scores:
        return problem
    rate, score = fmean(accuracies[problem.id]), round(scores[problem.id], 6)
    return replace(problem, metadata={PASS_RATE: rate, **problem.metadata, SCORE: score})


def _rejection_reason(problem: Problem, options: SelectOptions) -> str | None:
    if options.min_learning_impact is not None:
        score = _number(problem, SCORE)
        if score is None:
            return "never_sampled"
        if score < options.min_learning_impact:
            return "low_learning_impact"
    if options.pass_rate_range is not None:
        rate = _number(problem, PASS_RATE)
        if rate is None:
            return "no_pass_rate"
        if not options.pass_rate_range[0] <= rate <= options.pass_rate_range[1]:
            return "too_easy" if rate > options.pass_rate_range[1] else "too_hard"
    return None


def _stratum_of(problem: Problem, options: SelectOptions) -> tuple[str, ...]:
    """Return the stratum of a problem: the bin of its pass rate, and its source."""
    rate = _number(problem, PASS_RATE)
    bin_name = "unmeasured" if rate is None else f"{bin_of(rate, options.difficulty_bins):02d}"
    return (bin_name, str(problem.metadata.get("source", ""))) if options.by_source else (bin_name,)


def _stratum_name(stratum: tuple[str, ...], options: SelectOptions) -> str:
    """Format a stratum: "never", "0.25 to 0.5" or "always", and the source."""
    bin_name, bins = stratum[0], options.difficulty_bins
    if bin_name.isdecimal():
        number = int(bin_name)
        ends = {0: "never", bins + 1: "always"}
        bin_name = ends.get(number, f"{(number - 1) / bins:g} to {number / bins:g}")
    return " / ".join([bin_name, *stratum[1:]])


def _number(problem: Problem, name: str) -> float | None:
    """Return a number of the metadata, which is text in a CSV file; None if it is missing.

    Raises:
        DataError: The value is not a number.
    """
    value = problem.metadata.get(name)
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} of the problem {problem.id!r} must be a number, got {value!r}") from error


def allocate(sizes: Mapping[Stratum, int], count: int) -> dict[Stratum, int]:
    """Allocate `count` items to strata as evenly as their sizes allow. The first strata get the remainder."""
    allocated = dict.fromkeys(sizes, 0)
    remaining = min(count, sum(sizes.values()))
    while remaining:
        open_strata = [stratum for stratum in sizes if allocated[stratum] < sizes[stratum]]
        each = max(1, remaining // len(open_strata))
        for stratum in open_strata:
            more = min(each, sizes[stratum] - allocated[stratum], remaining)
            allocated[stratum] += more
            remaining -= more
    return allocated


def balanced_sample(
    problems: Sequence[Problem],
    count: int,
    stratum_of: Callable[[Problem], Hashable],
    score_of: Callable[[Problem], float],
    seed: int = 0,
) -> list[Problem]:
    """Select the problems with the highest scores from each stratum, `count` in all, in their original order.

    The seed selects among problems with equal scores, and the strata that get the remainder.
    """

    def draw(name: object) -> bytes:
        return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()

    def rank(problem: Problem) -> tuple[float, bytes]:
        return -score_of(problem), draw(problem.id)

    strata: dict[Hashable, list[Problem]] = {}
    for problem in problems:
        strata.setdefault(stratum_of(problem), []).append(problem)
    counts = allocate({stratum: len(strata[stratum]) for stratum in sorted(strata, key=draw)}, count)
    selected = {
        problem.id for stratum, members in strata.items() for problem in sorted(members, key=rank)[: counts[stratum]]
    }
    return [problem for problem in problems if problem.id in selected]


def bin_of(pass_rate: float, bins: int) -> int:
    """Return the bin of a pass rate: 0 if never solved, `bins` + 1 if always solved, else 1 to `bins`."""
    if pass_rate in (0.0, 1.0):
        return 0 if pass_rate == 0.0 else bins + 1
    return 1 + min(bins - 1, int(pass_rate * bins))
