"""Find trajectories in an index by their place, read them from their files, and summarize them for lists."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct

from torl.base.errors import RecordError
from torl.base.inputs import open_file, parse_json
from torl.components.text.answers import shown_reference
from torl.run.records.rows import parse_row
from torl_lab.view.columns import Array, Columns, IndexReader
from torl_lab.view.facets import FINISHES, FLAGS, status_names
from torl_lab.view.selection import Matches

MAX_ROW_BYTES: Final = 256 << 20
"""Size of the longest line that is read."""
_MAX_LISTED_BYTES: Final = 16 << 20
_EXCERPT: Final = 160


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a trajectory: a target, a file and the number of a line, from 0. It is stable, unlike rows.

    Attributes:
        reader: Reader of the target.
        columns: Columns of the target.
        position: Index in the columns.
    """

    reader: IndexReader
    columns: Columns
    position: int

    def __getitem__(self, name: str) -> Any:
        """Return a facet as a number of Python."""
        return self.columns.arrays[name].item(self.position)

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.columns.files.get(self["file"], "?")

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.reader.target.path_of(self.file)

    def reference(self) -> dict[str, Any]:
        """Return the position as JSON."""
        return {"run": self.reader.target.label, "file": self.file, "line": self["line"]}

    def read(self, max_bytes: int = MAX_ROW_BYTES) -> str:
        """Read the line from the file, or its beginning.

        Raises:
            RecordError: The file cannot be read, or has changed since it was indexed.
        """
        offset, length = self["offset"], self["length"]
        try:
            with open_file(self.path) as file:
                before = b"\n" if offset == 0 else os.pread(file.fileno(), 1, offset - 1)
                data = os.pread(file.fileno(), min(length + 1, max_bytes), offset)
        except OSError as error:
            raise RecordError(f"{self.path}: cannot be read: {error.strerror}") from error
        is_whole = len(data) == length + 1
        if before != b"\n" or (is_whole and data.find(b"\n") != length):
            raise RecordError(f"{self.path}: has changed since it was indexed; try again in a moment")
        return data.rstrip(b"\n").decode("utf-8", errors="replace")

    def read_row(self) -> dict[str, Any]:
        """Read the row.

        Raises:
            RecordError: The file cannot be read, or the line is not a JSON object or too long.
        """
        place = f"{self.file}, line {self['line'] + 1}"
        if self["length"] >= MAX_ROW_BYTES:
            raise RecordError(f"{place}: longer than {MAX_ROW_BYTES >> 20} MiB")
        try:
            row = parse_json(self.read())
        except ValueError as error:
            raise RecordError(f"{place}: damaged: {error}") from error
        if not isinstance(row, dict):
            raise RecordError(f"{place}: damaged: not an object")
        return row


@contextmanager
def reading_rows() -> Iterator[None]:
    """Turn the errors of a row that lacks parts of a trajectory into a RecordError.

    Raises:
        RecordError: The block found such a row.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise RecordError(f"the line is not a trajectory: {type(error).__name__}: {error}") from error


def places_of(matches: Sequence[Matches], order: Array) -> list[Place]:
    """Return the places of rows in the form of `selection.ordered`."""
    owned = [(matches[int(owner)], int(row)) for owner, row in order]
    return [Place(each.reader, each.columns, row) for each, row in owned]


def find_place(reader: IndexReader, file: str, line: int) -> Place:
    """Find a trajectory by file and line.

    Raises:
        LookupError: The index does not have it, perhaps not yet.
    """
    columns = reader.columns()
    for number, name in columns.files.items():
        if name == file and len(found := np.flatnonzero((columns["file"] == number) & (columns["line"] == line))):
            return Place(reader, columns, int(found[0]))
    raise LookupError(f"{reader.target.label}: line {line} of {file!r} is not in the index")


def group_places(place: Place) -> list[Place]:
    """Return the members of a trajectory's group, in the order of their samples."""
    columns = place.columns
    same = np.logical_and.reduce([columns[name] == place[name] for name in ("file", "group", "problem")])
    members = np.flatnonzero(same)
    members = members[np.argsort(columns["sample"][members], kind="stable")]
    return [Place(place.reader, columns, int(each)) for each in members]


def facets_json(place: Place) -> dict[str, Any]:
    """Return a trajectory's facets, without its texts."""
    advantage, flags = place["advantage"], place["flags"]
    return {
        **place.reference(),
        **{name: place[name] for name in ("step", "sample", "calls", "failed", "tokens", "turns")},
        "set": place.columns.sets.get(place["set"], "?"),
        "reward": round(place["reward"], 6),
        "advantage": None if isnan(advantage) else round(advantage, 6),
        "statuses": status_names(place["statuses"]),
        "finish": FINISHES[place["finish"]],
        "versions": None if place["oldest"] < 0 else [place["oldest"], place["newest"]],
        "flags": [name for name, flag in FLAGS.items() if flags & flag],
    }


def summaries(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Return trajectories for a list: facets, problem, answers and the end of the response."""
    problems = {}
    for reader in {place.reader for place in places}:
        numbers = {place["problem"] for place in places if place.reader is reader}
        problems[reader] = {number: found.name for number, found in reader.problems(sorted(numbers)).items()}
    return [
        {**facets_json(place), **_texts(place), "problem": problems[place.reader].get(place["problem"], "")}
        for place in places
    ]


class _Listed(Struct):
    """The fields of a row that a list shows the beginning or the end of."""

    question: Any = None
    reference_answer: Any = ""
    answer: Any = None
    text: Any = None


def _texts(place: Place) -> dict[str, Any]:
    try:
        row = parse_row(place.read(_MAX_LISTED_BYTES), _Listed)
    except RecordError as error:
        return {"error": str(error)}
    except ValueError:
        row = _Listed()  # damaged, or too long for a list
    return {
        "question": _excerpt(row.question),
        "reference": _excerpt(shown_reference(str(row.reference_answer))),
        "answer": _excerpt(row.answer),
        "end": _excerpt(row.text, slice(-_EXCERPT, None)),
    }


def _excerpt(text: Any, part: slice = slice(_EXCERPT)) -> str | None:
    return text[part] if isinstance(text, str) else None


def brief(place: Place) -> Mapping[str, Any]:
    """Return the facets that a list of a group's members shows."""
    facets = facets_json(place)
    return {
        name: facets[name]
        for name in (*place.reference(), "sample", "reward", "advantage", "calls", "tokens", "flags", "finish")
    }
