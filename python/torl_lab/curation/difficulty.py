"""Measures of difficulty and usefulness: pass rates of a model and LIMR's learning impact. Axis `_K`: epochs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from statistics import fmean

from torl.base.errors import DataError
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.base.runtime.processes.supervision import run_with_watchers
from torl.base.types import Problem, ScoredGroup
from torl.components.data.values import PASS_RATE
from torl.rollout.group_file import play_to_file
from torl.rollout.model_directory import ModelDirectory, cap_to_context
from torl.rollout.played_output import PlayedOutput, problem_digest
from torl.rollout.sampling import BATCH_ID, require_same_origin, with_seed
from torl.rollout.startup import open_rollouts
from torl.run.config import SampleConfig
from torl.run.display.console import Console
from torl.run.records.files import append_atomically, atomic_write, locked_file, training_files
from torl.run.records.reading import read_trajectories
from torl_lab.curation.problem_files import encode_problems, encode_rows, read_appended

_BATCH_SIZE = 16_384  # problems whose prompts are in memory


@dataclass(frozen=True, slots=True)
class PassRate:
    """The pass rate of a problem over a number of samples."""

    rate: float
    samples: int
    digest: str
    """Digest of the problem (`problem_digest`)."""


@dataclass(frozen=True, slots=True)
class PassRateFile:
    """Pass rates by problem, appended as groups end. No trajectory is kept."""

    path: Path

    def append(self, group: ScoredGroup) -> None:
        """Append the pass rate of a group."""
        problem = group.prompt.problem
        row = {
            "id": problem.id,
            PASS_RATE: group.accuracy,
            "samples": len(group.members),
            "digest": problem_digest(problem),
        }
        append_atomically(self.path, encode_rows([row]))

    def read(self) -> dict[str, PassRate]:
        """Return the pass rates by problem (`read_appended`)."""
        rows = read_appended(self.path)
        return {row["id"]: PassRate(row[PASS_RATE], row["samples"], row["digest"]) for row in rows}


async def measure_difficulty(config: SampleConfig, output: Path, console: Console) -> dict[str, float]:
    """Sample responses to each problem, write the problems with their pass rates, and return all pass rates.

    Pass rates are appended to `config.sample.output`, so an interrupted command resumes.

    Raises:
        ConfigError: Pass rates were measured with other settings or problems, or of another model, or another command
            writes them.
        TorlError: The configuration, model or problems are invalid, or a component failed. Pass rates are kept.
    """
    model = ModelDirectory.open(config.model.path, config.rollout.tools, config.rollout.environment)
    config = cap_to_context(config, model.path, console)
    with locked_file(config.sample.output, "command"):
        measured = await _measure_missing(config, model, console)
    problems = config.sample.problems.bind()()
    with atomic_write(output) as file:
        for problem in with_pass_rates(problems, measured):
            file.write(encode_problems([problem]))
    return {problem: each.rate for problem, each in measured.items()}


async def _measure_missing(config: SampleConfig, model: ModelDirectory, console: Console) -> dict[str, PassRate]:
    """Measure the problems that the file of pass rates lacks, and return all pass rates."""
    await require_same_origin(config, model, console)
    rates = PassRateFile(config.sample.output)
    done = rates.read()
    if done:
        played = {problem: each.digest for problem, each in done.items()}
        PlayedOutput(rates.path, played=True).require_problems(config.sample.problems.bind()(), played)
        console.line(f"{len(done)} problems were measured already")
    stream = model.prompts(config.sample.problems, config.data)
    missing = (prompt for prompt in islice(stream, config.sample.max_problems) if prompt.problem.id not in done)
    batch = tuple(islice(missing, _BATCH_SIZE))
    if batch:
        with ScratchDirectory("torl-difficulty-") as logs:
            async with open_rollouts(config, model, console, log_directory=logs, seed=config.sample.seed) as rollouts:
                play = partial(
                    play_to_file,
                    rollouts,
                    output=rates,
                    console=console,
                    name="episodes",
                    batch_id=BATCH_ID,
                    samples=config.sample.samples_per_problem,
                    player=with_seed(rollouts.player, config.sample.seed),
                )
                while batch:
                    await run_with_watchers(play(batch), *rollouts.watchers(config.rollout.stall_timeout_seconds))
                    batch = tuple(islice(missing, _BATCH_SIZE))
    console.line(f"problems: {stream}")
    return rates.read()


def with_pass_rates(problems: Iterable[Problem], rates: Mapping[str, PassRate]) -> Iterator[Problem]:
    """Yield the measured problems, with the pass rate and the number of samples in their metadata."""
    for problem in problems:
        if problem.id in rates:
            measured = rates[problem.id]
            yield replace(problem, metadata={**problem.metadata, PASS_RATE: measured.rate, "samples": measured.samples})


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
    epochs = zip_longest(*accuracies.values())
    mean_K = [fmean(value for value in values if value is not None) for values in epochs]
    scores = {}
    for problem, values_K in accuracies.items():
        pairs = list(zip(values_K, mean_K, strict=False))
        largest = sum((1 - mean) ** 2 for _, mean in pairs)
        distance = sum((value - mean) ** 2 for value, mean in pairs)
        scores[problem] = 1.0 - distance / largest if largest else 1.0
    return scores
