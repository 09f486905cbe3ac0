"""The sets of problems that the papers evaluate on, by name, and where their files are found."""

from collections.abc import Mapping, Sequence
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
"""The sets of ToRL (table 3) and of ZeroTIR."""

_ORDER = list(dict.fromkeys(name for names in SUITES.values() for name in names))
_ENDINGS = (".jsonl", ".json", ".parquet")


def find_sets(wanted: Sequence[str], directory: Path) -> dict[str, ProblemChoice]:
    """The problem sets that names of suites, names of sets, files and `package.module:function` stand for.

    Args:
        wanted: what was asked for, in order; a set that is asked for twice is found once.
        directory: where the files of named sets lie, each under the name of its set.

    Raises:
        DataError: files are missing; names all of them.
        ConfigError: two different sets have one name, or a function cannot be imported.
    """
    missing: list[str] = []
    sets: dict[str, ProblemChoice] = {}
    places: dict[str, str] = {}
    for each in wanted:
        for name in SUITES.get(each, (each,)):
            place = _place(name, directory)
            if place is None:
                missing.append(name)
                continue
            label = _label(name)
            if places.setdefault(label, place) != place:
                raise ConfigError(f"two sets are called {label!r}: {places[label]} and {place}")
            sets[label] = _chosen(place)
    if missing:
        raise DataError(_missing(missing, directory))
    return sets


def set_sort_key(name: str) -> tuple[int, str]:
    """What sets are sorted by: those of the suites in their order, others behind them by name."""
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _place(name: str, directory: Path) -> str | None:
    """What the configuration takes for a set: its file, or whatever else gives problems."""
    if _is_function(name) or Path(name).suffix in _ENDINGS:
        return name
    files = [directory / f"{name}{ending}" for ending in _ENDINGS]
    return next((str(file) for file in files if file.is_file()), None)


def _chosen(place: str) -> ProblemChoice:
    try:
        return cast(ProblemChoice, PROBLEMS.choose({"name": place} if _is_function(place) else place))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _is_function(place: str) -> bool:
    """Whether it is a problem source of one's own, `package.module:Name`."""
    return ":" in place and Path(place).suffix not in _ENDINGS


def _label(name: str) -> str:
    return Path(name).stem if Path(name).suffix in _ENDINGS else name.rpartition(":")[2].replace("/", "-")


def _missing(names: Sequence[str], directory: Path) -> str:
    files = ", ".join(f"{name}.jsonl" for name in names)
    strange = next((name for name in names if name not in _ORDER), None)
    hint = "" if strange is None else suggestion(strange, [*SUITES, *sorted(_ORDER)])
    return (
        f"{directory} lacks {files}{hint}; put the problems there (`id`, `problem`, `answer` on each line), name "
        "another directory with --sets, or name files"
    )
