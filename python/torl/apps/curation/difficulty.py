"""Measures of difficulty and usefulness: pass rates of a model and LIMR's learning impact. Axis `_K`: epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from torl.apps.curation.problem_files import encode_problems
from torl.config import SampleConfig
from torl.errors import DataError
from torl.records.files import atomic_write, training_files
from torl.records.reading import read_trajectories
from torl.report.console import Console
from torl.rollout.sampling import sample_to_file
from torl.types import Problem, ScoredGroup

PASS_RATE = "pass_rate"
"""Metadata field of the pass rate."""


async def measure_difficulty(config: SampleConfig, output: Path, console: Console) -> list[Problem]:
    """Sample responses to each problem and write the problems with their pass rates.

    Trajectories are appended to `config.sample.output`, so an interrupted command resumes.

    Raises:
        TorlError: The configuration, model or problems are invalid, or a component failed. Trajectories are kept.
    """
    measured = with_pass_rates(await sample_to_file(config, console))
    with atomic_write(output) as file:
        file.write(encode_problems(measured))
    return measured


def with_pass_rates(groups: Sequence[ScoredGroup]) -> list[Problem]:
    """Return the problems of the groups, with the pass rate and the number of samples in their metadata."""
    return [
        replace(
            group.prompt.problem,
            metadata={
                **group.prompt.problem.metadata,
                PASS_RATE: group.accuracy,
                "samples": len(group.members),
            },
        )
        for group in groups
    ]


def accuracies_of_run(run: Path) -> dict[str, list[float]]:
    """Return the accuracies of each problem in a run, in the order of the steps.

    Raises:
        DataError: The directory has no records of training steps.
        RecordError: A file is damaged.
    """
    accuracies: dict[str, list[float]] = {}
    files = training_files(run)
    if not files:
        raise DataError(f"{run}: contains no trajectories of training steps: pass a run directory")
    for path in files:
        verdicts: dict[str, list[bool]] = {}
        for record in read_trajectories(path):
            verdicts.setdefault(record.trajectory.prompt.problem.id, []).append(record.grade.correct)
        for problem, correct in verdicts.items():
            accuracies.setdefault(problem, []).append(sum(correct) / len(correct))
    return accuracies


def learning_impact(accuracies: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return LIMR's learning impact of each problem: how closely its accuracy curve follows the mean curve.

    s = 1 - sum_k (r^k - m^k)^2 / sum_k (1 - m^k)^2, with the problem's accuracy r^k in its k-th epoch and the mean m^k
    over all problems (Li et al. 2025, equation 3). A problem with fewer epochs is compared in these epochs only. If
    the mean is always 1, the score is 1.

    Args:
        accuracies: Accuracies of each problem by epoch, at least one.
    """
    epochs = max((len(values_K) for values_K in accuracies.values()), default=0)
    mean_K = np.array(
        [np.mean([values_K[k] for values_K in accuracies.values() if len(values_K) > k]) for k in range(epochs)]
    )
    scores = {}
    for problem, values_K in accuracies.items():
        accuracy_K = np.asarray(values_K)
        target_K = mean_K[: len(accuracy_K)]
        largest = float(((1 - target_K) ** 2).sum())
        scores[problem] = 1.0 - float(((accuracy_K - target_K) ** 2).sum()) / largest if largest else 1.0
    return scores
