"""The runs of a sweep: each combination of the values of a grid with each seed, trained one after another."""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.runtime.processes.children import dying_with_parent
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.files import CONFIG_FILE, SUMMARY_FILE
from torl.run.records.run_directory import changed_keys

_SEED = "run.seed"
_DIRECTORY = "run.directory"
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of the values of a grid."""

    settings: Mapping[str, str]
    """Text of each value by the dotted name of its setting."""

    @property
    def label(self) -> str:
        """Label in tables: the last part of each setting, or its name if several end alike, and its value."""
        ends = Counter(map(_last_part, self.settings))
        names = (name if ends[_last_part(name)] > 1 else _last_part(name) for name in self.settings)
        return ", ".join(f"{name} = {value}" for name, value in zip(names, self.settings.values(), strict=True))

    @property
    def name(self) -> str:
        """Name of the directory, without its seed."""
        words = "_".join(f"{_last_part(name)}={value}" for name, value in self.settings.items())
        return re.sub(r"[^\w.=+-]+", "-", words)


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One training run of a sweep."""

    combination: Combination
    seed: int
    config: TrainConfig
    """The whole configuration, with the directory and the seed."""
    words: tuple[str, ...]
    """Arguments of `torl train`."""

    @property
    def directory(self) -> Path:
        """Directory of the run."""
        return self.config.run.directory

    @property
    def label(self) -> str:
        """Label in messages and on the page of several runs."""
        return f"{self.combination.label}, seed {self.seed}"

    @property
    def has_summary(self) -> bool:
        """Whether a run in the directory reached its last step."""
        return (self.directory / SUMMARY_FILE).is_file()


def read_grid(arguments: Sequence[str]) -> list[Combination]:
    """Read `section.setting=VALUE,VALUE ...` and return all combinations.

    Commas within brackets and quotes are part of a value.

    Raises:
        ConfigError: An argument has no values, a bracket is not closed, or a setting is repeated.
    """
    axes: dict[str, list[str]] = {}
    for argument in arguments:
        name, equals, values = argument.partition("=")
        axis = _split_values(argument, values)
        if not equals or not name or not axis:
            raise ConfigError(f"--grid {argument!r} must be section.setting=VALUE,VALUE")
        if name in axes or name in (_SEED, _DIRECTORY):
            raise ConfigError(f"--grid {name}: is given twice" if name in axes else f"--grid cannot set {name}")
        axes[name] = list(dict.fromkeys(axis))
    return [Combination(dict(zip(axes, values, strict=True))) for values in product(*axes.values())]


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _split_values(argument: str, values: str) -> list[str]:
    """Split values at the commas outside of brackets and quotes. A quote in the middle of a plain text is a letter."""
    found, depth, position = [""], 0, 0
    while position < len(values):
        is_start = depth > 0 or not found[-1].strip()
        quoted = _QUOTED.match(values, position) if is_start else None
        piece = quoted.group() if quoted else values[position]
        position += len(piece)
        if piece == "," and depth == 0:
            found.append("")
            continue
        found[-1] += piece
        if piece in ("[", "{"):
            depth += 1
        elif piece in ("]", "}"):
            depth = max(0, depth - 1)
    if depth:
        raise ConfigError(f"--grid {argument!r}: a bracket is not closed")
    return [value.strip() for value in found if value.strip()]


def sweep_runs(
    configs: Sequence[str], combinations: Sequence[Combination], seeds: int, output: Path, overrides: Mapping[str, str]
) -> Iterator[SweepRun]:
    """Yield the runs: all combinations with the first seed, then with the next, so that a sweep cut short is balanced.

    Args:
        configs: Names of configurations, of which later ones override earlier ones.
        combinations: Combinations of the grid.
        seeds: Number of seeds, from `run.seed` of the configuration on.
        output: Directory of the directories of the runs.
        overrides: Text of further settings by dotted name.

    Raises:
        ConfigError: A configuration is invalid, or two combinations have the same directory.
    """
    files = [find_config(name) for name in configs]
    if len({each.name for each in combinations}) < len(combinations):
        raise ConfigError("two combinations of --grid have the same directory: write their values in another way")
    first = load_config(TrainConfig, files, {**overrides, _DIRECTORY: str(output)}).run.seed
    for seed, combination in product(range(first, first + seeds), combinations):
        settings = {
            **overrides,
            **combination.settings,
            _SEED: str(seed),
            _DIRECTORY: str(output / f"{combination.name}_seed={seed}"),
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        yield SweepRun(combination, seed, load_config(TrainConfig, files, settings), (*configs, *words))


def is_finished(run: SweepRun) -> bool:
    """Whether the run reached its last step.

    Raises:
        ConfigError: The directory contains a run with other settings.
        RecordError: The configuration in the directory cannot be read.
    """
    for change in changed_keys(run.directory, run.config):
        if change.key != "run.resume":
            raise ConfigError(f"{run.directory} contains a run with other settings ({change}): choose another --output")
    return run.has_summary


async def train_missing(runs: Sequence[SweepRun], console: Console) -> dict[Path, int]:
    """Train the runs that are not finished, one after another. Interrupted runs are resumed.

    A run that fails does not stop the others. Its messages are on standard error.

    Returns:
        The exit status of each run that failed, by its directory.

    Raises:
        ConfigError: A directory contains a run with other settings.
    """
    missing = [run for run in runs if not is_finished(run)]
    failed: dict[Path, int] = {}
    console.line(f"{len(runs)} runs, of which {len(runs) - len(missing)} are finished")
    for number, run in enumerate(missing, start=1):
        console.line(f"run {number} of {len(missing)}: {run.label}")
        status = await _train(run)
        if status:
            console.warning(f"{run.directory}: failed with exit status {status}")
            failed[run.directory] = status
    return failed


async def _train(run: SweepRun) -> int:
    """Train one run and return its exit status. A cancelled call ends the process, which closes its own.

    The process dies with a sweep that is killed: otherwise the run would keep training in the directory that the next
    sweep resumes.
    """
    resume = ("--run.resume", "true") if (run.directory / CONFIG_FILE).exists() else ()
    process = await asyncio.create_subprocess_exec(
        *dying_with_parent(sys.executable, "-m", "torl.train", *run.words, *resume), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
