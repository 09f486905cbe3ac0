"""The problem sets of an evaluation: suites, public sets, datasets on the Hub, files and functions."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from torl.base.errors import ConfigError, DataError
from torl.base.options import suggestion
from torl.base.types.problems import TESTS
from torl.components.data.layout import Layout
from torl.components.data.public_sets import public_sets
from torl.components.hub import DATASET_PREFIX
from torl.components.hub.datasets import FILE_SUFFIXES, is_readable, without_suffixes
from torl.run.config import ProblemChoice
from torl.run.config.choices import PROBLEMS

SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "torl": ("aime24", "aime25", "math500", "olympiadbench", "amc23"),
        "zerotir": ("aime24", "aime25", "math500", "hmmt_feb24", "hmmt_feb25", "cmimc", "olymmath"),
        "code": ("humaneval", "humaneval_plus", "mbpp", "mbpp_plus"),
    }
)
"""Names of the problem sets of ToRL (table 3), of ZeroTIR (table 2), and of EvalPlus for programs."""

_ORDER = list(dict.fromkeys(name for names in SUITES.values() for name in names))


def find_locations(wanted: Sequence[str], directory: Path) -> dict[str, str]:
    """Resolve suites, set names, files, datasets and `package.module:function` to locations of problems.

    A named set is a file in the directory, or else a public set.

    Args:
        wanted: Names of suites or sets, `SET=FILE`, files, `hf:owner/name`, or functions. Duplicates are dropped.
        directory: Directory of the files of named sets. Each file has the name of its set.

    Returns:
        Locations by the name of the set, in order.

    Raises:
        DataError: Sets are missing. The message contains all of them.
        ConfigError: Two sets have the same name.
    """
    missing: list[str] = []
    locations: dict[str, str] = {}
    for each in wanted:
        for name in SUITES.get(each, (each,)):
            location = _location(name, directory)
            if location is None:
                missing.append(name)
            elif locations.setdefault(_label(name), location) != location:
                label = _label(name)
                raise ConfigError(f"two sets are called {label!r}: {locations[label]} and {location}")
    if missing:
        raise DataError(_missing(missing, directory))
    return locations


def make_set(location: str, layout: Layout) -> ProblemChoice:
    """Return the problem set at a location, with the options of its layout.

    Raises:
        ConfigError: A function cannot be imported, or takes no such options.
    """
    options: dict[str, Any] = {
        "columns": dict(layout.columns),
        "split": layout.split,
        "answer_from": layout.answer_from,
        "where": {column: list(values) for column, values in layout.where.items()},
        "keep": None if layout.keep is None else list(layout.keep),
        "files": list(layout.files) or None,
    }
    section = {name: value for name, value in options.items() if value not in (None, {})}
    section |= {"name": location} if _is_function(location) else {"name": "file", "path": location}
    try:
        return cast(ProblemChoice, PROBLEMS.choose(section))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def has_tests(name: str) -> bool:
    """Whether a public set has tests of programs instead of answers. False for a set that is not public."""
    public = public_sets().get(name)
    return public is not None and (public.layout.tests is not None or TESTS in public.layout.columns)


def set_sort_key(name: str) -> tuple[int, str]:
    """Return the sort key of a set: sets of suites in the suites' order, then other sets by name."""
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _location(name: str, directory: Path) -> str | None:
    """Return the location of a set, or None if it is unknown."""
    if _is_function(name) or name.startswith(DATASET_PREFIX) or "=" in name or is_readable(name):
        label, equals, path = name.partition("=")
        return path if equals and label not in public_sets() else name
    files = [directory / f"{name}{suffix}" for suffix in FILE_SUFFIXES]
    found = next((str(file) for file in files if file.is_file()), None)
    public = public_sets().get(name.partition("@")[0])
    return name if found is None and public is not None and public.address is not None else found


def _is_function(location: str) -> bool:
    """Whether a location is a custom problem source, `package.module:Name`."""
    return re.fullmatch(r"[\w.]+:\w+", location) is not None and not location.startswith(DATASET_PREFIX)


def _label(name: str) -> str:
    label, equals, _ = name.partition("=")
    if equals:
        return label
    if name.startswith(DATASET_PREFIX):
        return name.partition("@")[0].rpartition("/")[2]
    if is_readable(name):
        return without_suffixes(Path(name).name)
    return name.partition("@")[0].rpartition(":")[2].replace("/", "-")


def _missing(names: Sequence[str], directory: Path) -> str:
    files = ", ".join(f"{name}.jsonl" for name in names)
    unknown = next((name for name in names if name not in _ORDER), None)
    hint = "" if unknown is None else suggestion(unknown, [*SUITES, *sorted({*_ORDER, *public_sets()})])
    return (
        f"{directory} lacks {files}{hint}, and torl knows no address of these sets; add the files (`id`, `problem`, "
        "`answer` on each line), set --sets-directory, or pass files to --suite"
    )
