"""The evaluations of the papers: their problem sets, and the rows of their tables as printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import cast

from torl.config import ProblemChoice
from torl.config.choices import PROBLEMS
from torl.errors import ConfigError, DataError
from torl.options import suggestion

SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "torl": ("aime24", "aime25", "math500", "olympiadbench", "amc23"),
        "zerotir": ("aime24", "aime25", "math500", "hmmt_feb24", "hmmt_feb25", "cmimc"),
    }
)
"""Names of the problem sets of ToRL (table 3) and ZeroTIR."""

_ORDER = list(dict.fromkeys(name for names in SUITES.values() for name in names))
_ENDINGS = (".jsonl", ".json", ".parquet")


def find_sets(wanted: Sequence[str], directory: Path) -> dict[str, ProblemChoice]:
    """Resolve suites, set names, files and `package.module:function` to problem sets.

    Args:
        wanted: Names of suites or sets, files or functions. Duplicates are dropped.
        directory: Directory of the files of named sets. Each file has the name of its set.

    Returns:
        Problem sets by name, in order.

    Raises:
        DataError: Files are missing. The message contains all of them.
        ConfigError: Two sets have the same name, or a function cannot be imported.
    """
    missing: list[str] = []
    sets: dict[str, ProblemChoice] = {}
    locations: dict[str, str] = {}
    for each in wanted:
        for name in SUITES.get(each, (each,)):
            location = _location(name, directory)
            if location is None:
                missing.append(name)
                continue
            label = _label(name)
            if locations.setdefault(label, location) != location:
                raise ConfigError(f"two sets are called {label!r}: {locations[label]} and {location}")
            sets[label] = _problem_choice(location)
    if missing:
        raise DataError(_missing(missing, directory))
    return sets


def set_sort_key(name: str) -> tuple[int, str]:
    """Return the sort key of a set: sets of suites in the suites' order, then other sets by name."""
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _location(name: str, directory: Path) -> str | None:
    """Return the file or the function of a set, or None if the set has no file."""
    if _is_function(name) or Path(name).suffix in _ENDINGS:
        return name
    files = [directory / f"{name}{ending}" for ending in _ENDINGS]
    return next((str(file) for file in files if file.is_file()), None)


def _problem_choice(location: str) -> ProblemChoice:
    try:
        return cast(ProblemChoice, PROBLEMS.choose({"name": location} if _is_function(location) else location))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _is_function(location: str) -> bool:
    """Whether a location is a custom problem source, `package.module:Name`."""
    return ":" in location and Path(location).suffix not in _ENDINGS


def _label(name: str) -> str:
    return Path(name).stem if Path(name).suffix in _ENDINGS else name.rpartition(":")[2].replace("/", "-")


def _missing(names: Sequence[str], directory: Path) -> str:
    files = ", ".join(f"{name}.jsonl" for name in names)
    unknown = next((name for name in names if name not in _ORDER), None)
    hint = "" if unknown is None else suggestion(unknown, [*SUITES, *sorted(_ORDER)])
    return (
        f"{directory} lacks {files}{hint}; add the files (`id`, `problem`, `answer` on each line), set "
        "--sets-directory, or pass files to --suite"
    )


_ROUNDING = 0.1  # printed numbers have one decimal, so a correct mean differs by less


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a paper's table."""

    model: str
    measure: str
    values: Mapping[str, float]
    """Accuracy in percent by problem set."""
    average: float | None = None
    """Printed average, if any."""
    with_tools: bool = True
    trained_by_paper: bool = False
    """Whether the paper trained the model. Differences are shown to these rows only."""

    @property
    def mean(self) -> float:
        """Mean of the printed values."""
        return sum(self.values.values()) / len(self.values)

    @property
    def note(self) -> str | None:
        """A note if the printed average differs from the mean of the printed values, else None."""
        if self.average is None or abs(self.average - self.mean) < _ROUNDING:
            return None
        return f"{self.model}: the source prints {self.average:.1f}; the mean of its numbers is {self.mean:.1f}"


def _torl(model: str, *numbers: float | None, average: float | None, tools: bool, trained: bool = False) -> PaperRow:
    sets = ("aime24", "aime25", "math500", "olympiadbench", "amc23")
    values = {name: number for name, number in zip(sets, numbers, strict=True) if number is not None}
    return PaperRow(model, "greedy", values, average, tools, trained)


PAPERS: Mapping[str, tuple[PaperRow, ...]] = MappingProxyType(
    {
        # ToRL's README at cb78cf1 (table 3 of the paper).
        "torl": (
            _torl("Qwen2.5-Math-1.5B-Instruct", 10.0, 10.0, 66.0, 31.0, 62.5, average=35.9, tools=False),
            _torl("Qwen2.5-Math-1.5B-Instruct-TIR", 13.3, 13.3, 73.8, 41.3, 55.0, average=41.3, tools=True),
            _torl("ToRL-1.5B", 26.7, 26.7, 77.8, 44.0, 67.5, average=48.5, tools=True, trained=True),
            _torl("Qwen2.5-Math-7B-Instruct", 10.0, 16.7, 74.8, 32.4, 65.0, average=39.8, tools=False),
            _torl("Qwen2.5-Math-7B-Instruct-TIR", 26.7, 16.7, 78.8, 45.0, 70.0, average=47.4, tools=True),
            _torl("SimpleRL-Zero", 33.3, 6.7, 77.2, 37.6, 62.5, average=43.5, tools=False),
            _torl("rStar-Math-7B", 26.7, None, 78.4, 47.1, 47.5, average=None, tools=False),
            _torl("Eurus-2-7B-PRIME", 26.7, 13.3, 79.2, 42.1, 57.4, average=43.1, tools=False),
            _torl("ToRL-7B", 43.3, 30.0, 82.2, 49.9, 75.0, average=62.1, tools=True, trained=True),
        ),
        # ZeroTIR's headline (PPO, N = 20; multiples of 1/30: one response to a problem), and its authors' README.
        "zerotir": (
            PaperRow(
                "ZTRL-7B, N = 20", "greedy", {"aime24": 50.0, "aime25": 26.7, "math500": 80.2}, trained_by_paper=True
            ),
            PaperRow("ZTRL-0727-7B", "avg@32", {"aime25": 29.99, "hmmt_feb25": 22.08}, trained_by_paper=True),
            PaperRow(
                "ZTRL-0727-7B", "greedy", {"aime25": 32.81, "amc23": 80.0, "math500": 84.6}, trained_by_paper=True
            ),
        ),
    }
)
"""The rows of each paper, by the name of its suite."""
