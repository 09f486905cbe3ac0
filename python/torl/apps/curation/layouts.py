"""How files are read that are not laid out as ours: their columns and splits, as words of a command line say them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torl.errors import ConfigError

_FIELDS = ("problem", "answer", "id")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where problem, answer and id stand, if under other names, and which split of a data set is read."""

    columns: dict[str, str]
    split: str | None


def layouts(columns: Sequence[str], splits: Sequence[str], names: Collection[str]) -> dict[str, Layout]:
    """The layout of each file, by its name: what is said of the file itself goes before what is said of all.

    Args:
        columns: `FIELD=COLUMN` for all files, `NAME:FIELD=COLUMN` for one.
        splits: `SPLIT` for all files, `NAME:SPLIT` for one.
        names: of the files.

    Raises:
        ConfigError: a word is neither, or names a field or a file that there is not.
    """
    columns_of, splits_of = _by_file("--column", columns, names), _by_file("--split", splits, names)
    return {
        name: Layout(dict(map(_field_and_column, columns_of[name])), next(reversed(splits_of[name]), None))
        for name in names
    }


def _by_file(option: str, words: Sequence[str], names: Collection[str]) -> dict[str, list[str]]:
    """What is said of each file, with what is said of all before it."""
    of_all: list[str] = []
    of_one: dict[str, list[str]] = {name: [] for name in names}
    for word in words:
        name, colon, said = word.rpartition(":")
        if not colon:
            of_all.append(said)
        elif name in of_one:
            of_one[name].append(said)
        else:
            raise ConfigError(f"{option} {word}: no file is called {name!r}; there are {', '.join(sorted(names))}")
    return {name: of_all + own for name, own in of_one.items()}


def _field_and_column(word: str) -> tuple[str, str]:
    field, _, column = word.partition("=")
    if field not in _FIELDS or not column:
        raise ConfigError(f"--column takes FIELD=COLUMN, FIELD one of {', '.join(_FIELDS)}, not {word!r}")
    return field, column
