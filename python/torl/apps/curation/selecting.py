"""The problems that are worth training on: by LIMR's score, by pass rate, balanced over difficulty and source."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torl.apps.curation.difficulty import PASS_RATE
from torl.data.balancing import balanced_sample, bin_of, learning_impact
from torl.errors import DataError
from torl.records.layout import training_files
from torl.records.reading import read_trajectories
from torl.types import Problem

SCORE = "learning_impact"
"""The field of a problem that holds LIMR's score."""


@dataclass(frozen=True, slots=True)
class SelectOptions:
    """What is chosen. Each that is None asks for nothing."""

    min_learning_impact: float | None = None  # least learning impact: LIMR takes 0.6
    pass_rate_range: tuple[float, float] | None = None  # of pass rates, both ends included
    count: int | None = None
    bins: int = 10  # of pass rates between never and always solved, for the balance
    by_source: bool = True
    seed: int = 0


def accuracies_of_run(run: Path) -> dict[str, list[float]]:
    """How often each problem was solved each time that a run met it: its accuracies, in the order of the steps.

    Raises:
        DataError: there are no records of training steps.
        RecordError: a file is damaged.
    """
    accuracies: dict[str, list[float]] = {}
    files = training_files(run)
    if not files:
        raise DataError(f"{run}: holds no trajectories of training steps: name the directory of a run")
    for path in files:
        verdicts: dict[str, list[bool]] = {}
        for record in read_trajectories(path):
            verdicts.setdefault(record.trajectory.prompt.problem.id, []).append(record.grade.correct)
        for problem, correct in verdicts.items():
            accuracies.setdefault(problem, []).append(sum(correct) / len(correct))
    return accuracies


def select(
    problems: Sequence[Problem], options: SelectOptions, accuracies: dict[str, list[float]] | None = None
) -> tuple[list[Problem], dict[str, Any]]:
    """The problems that are chosen, in their order, and counts of what was left out and why.

    Args:
        problems: with pass rates, where a window or a balance over difficulty is asked for.
        options: see there.
        accuracies: of a run (`accuracies_of_run`), for the learning impact; its pass rates stand in for missing ones.

    Raises:
        DataError: what is asked for is not known of any problem, or nothing is left.
    """
    dropped: Counter[str] = Counter()
    if accuracies is not None:
        scores = learning_impact(accuracies)
        problems = [_scored(problem, scores, accuracies) for problem in problems]
    kept = []
    for problem in problems:
        reason = _why_not(problem, options)
        if reason is None:
            kept.append(problem)
        else:
            dropped[reason] += 1
    if not kept:
        raise DataError(f"no problem is left: {dict(dropped)}")
    if options.count is not None and options.count < len(kept):
        dropped["beyond_count"] = len(kept) - options.count
        kept = balanced_sample(kept, options.count, lambda problem: _cell(problem, options), _score, options.seed)
    cells = Counter(_cell(problem, options) for problem in kept)
    return kept, {
        "read": len(problems),
        "kept": len(kept),
        "dropped": dict(dropped),
        "cells": {_cell_name(cell, options): count for cell, count in sorted(cells.items())},
    }


def _scored(problem: Problem, scores: dict[str, float], accuracies: dict[str, list[float]]) -> Problem:
    if problem.id not in scores:
        return problem
    met = accuracies[problem.id]
    return replace(
        problem, metadata={PASS_RATE: sum(met) / len(met), **problem.metadata, SCORE: round(scores[problem.id], 6)}
    )


def _why_not(problem: Problem, options: SelectOptions) -> str | None:
    if options.min_learning_impact is not None:
        score = problem.metadata.get(SCORE)
        if score is None:
            return "never_met"
        if score < options.min_learning_impact:
            return "low_learning_impact"
    if options.pass_rate_range is not None:
        rate = problem.metadata.get(PASS_RATE)
        if rate is None:
            return "no_pass_rate"
        if not options.pass_rate_range[0] <= rate <= options.pass_rate_range[1]:
            return "too_easy" if rate > options.pass_rate_range[1] else "too_hard"
    return None


def _cell(problem: Problem, options: SelectOptions) -> tuple[str, ...]:
    """What the balance is over: the bin of its pass rate, and its source."""
    rate = problem.metadata.get(PASS_RATE)
    bin_name = "unmeasured" if rate is None else f"{bin_of(rate, options.bins):02d}"
    return (bin_name, str(problem.metadata.get("source", ""))) if options.by_source else (bin_name,)


def _cell_name(cell: tuple[str, ...], options: SelectOptions) -> str:
    """As a reader is told: "never", "0.25 to 0.5", "always"; and the source."""
    number = int(cell[0]) if cell[0].isdecimal() else None
    if number is None:
        name = cell[0]
    elif number in (0, options.bins + 1):
        name = "always" if number else "never"
    else:
        name = f"{(number - 1) / options.bins:g} to {number / options.bins:g}"
    return " / ".join([name, *cell[1:]])


def _score(problem: Problem) -> float:
    return float(problem.metadata.get(SCORE, 0.0))
