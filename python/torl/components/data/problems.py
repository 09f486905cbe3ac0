"""Problems of files on disk or on the Hub, loaded or streamed, with counts of the rows that are not problems.

Public files have a few invalid rows: up to one in a hundred is dropped with a warning, and more are an error, which
protects a run from a wrong column. `torl data prepare` drops any number.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from torl.base.errors import ConfigError, DataError
from torl.base.options import suggestion
from torl.base.types import Problem
from torl.components.data.files import find_files, numbered_rows
from torl.components.data.layout import FIELDS, Layout
from torl.components.data.public_sets import ProblemFile, find_problem_file
from torl.components.data.rows import EarlierRows, InvalidRowError, SkippedRowError
from torl.components.hub import resolve_dataset, stream_dataset

MAX_INVALID_FRACTION = 0.01
"""Maximum fraction of invalid rows in a file that is trained or evaluated on."""
_MAX_SHOWN = 5


def _require_known(columns: dict[str, str]) -> dict[str, str]:
    """Return the columns, or raise ValueError for a name that no problem has."""
    for name in columns:
        if name not in FIELDS:
            close = suggestion(name, FIELDS) or f"; the fields are {', '.join(FIELDS)}"
            raise ValueError(f"{name!r} is not a field of a problem{close}")
    return columns


ColumnNames: TypeAlias = Annotated[dict[str, str], AfterValidator(_require_known)]
RowFilter: TypeAlias = dict[str, str | list[str]]

_logger = logging.getLogger(__name__)


def load_problems(
    path: str | Path,
    columns: ColumnNames | None = None,
    split: str | None = None,
    answer_from: str | None = None,
    where: RowFilter | None = None,
    keep: list[str] | None = None,
    files: str | list[str] | None = None,
) -> list[Problem]:
    """Read a problem file (.jsonl, .json, .parquet, .csv or .arrow) in its order.

    A row without an id gets an id from its location ("line-3"). Copies of a row, with its id, are dropped and counted.

    Args:
        path: Path on disk, path inside the package (`torl:`), name of a dataset on the Hub (`hf:`), or name of a public
            set (`torl data sources`). A directory is read as a dataset with the layout of the Hub.
        columns: Columns of problem, answer, id, pass_rate and tests, if they have other names:
            { problem = "question.text" }.
        split: Split of a directory or a dataset on the Hub. The default is "train".
        answer_from: Column that the answer is derived from: of a text, its box or the text after "####"; of a list,
            also one that is JSON in a text, every entry is correct.
        where: Values of columns; rows with other values are skipped: { data_source = "aime24" }.
        keep: Columns that become metadata. The default is all.
        files: Patterns of the files of a directory or a dataset, instead of a split: "main/test*".

    Raises:
        ConfigError: `columns` has an unknown name.
        DataError: The file is missing, empty or in another format, or more than one row in a hundred is invalid. The
            message contains the file, the line or row, and the reason.
    """
    return load_file(find_problem_file(str(path), make_layout(columns, split, answer_from, where, keep, files)))


def load_file(file: ProblemFile) -> list[Problem]:
    """Read a problem file, as `load_problems` does.

    Raises:
        DataError: The same conditions as in `load_problems`.
    """
    counts = RowCounts()
    problems = [problem for problem in map(counts.add, read_problems(file)) if problem is not None]
    counts.check(file.path)
    return problems


def stream_problems(
    path: str | Path,
    columns: ColumnNames | None = None,
    split: str | None = None,
    answer_from: str | None = None,
    where: RowFilter | None = None,
    keep: list[str] | None = None,
    files: str | list[str] | None = None,
) -> Iterator[Problem]:
    """Stream problems in the order of the file, for sets that exceed memory.

    Repeated ids are not detected. A dataset on the Hub is read from the cache if the split is complete there, and over
    the network otherwise, without storing it. Pin its revision (`hf:owner/name@commit`), so that every epoch is the
    same.

    Args:
        path: File or dataset, as for `load_problems`.
        columns: Columns, as for `load_problems`.
        split: Split, as for `load_problems`.
        answer_from: Column that the answer is derived from, as for `load_problems`.
        where: Values of columns, as for `load_problems`.
        keep: Columns that become metadata, as for `load_problems`.
        files: Patterns of files, as for `load_problems`.

    Raises:
        ConfigError: `columns` has an unknown name.
        DataError: The file is missing or empty. At the end of the file, if more than one row in a hundred was invalid.
    """
    file = find_problem_file(str(path), make_layout(columns, split, answer_from, where, keep, files))
    counts = RowCounts()
    for item in read_problems(file, download=False, distinct=False):
        if (problem := counts.add(item)) is not None:
            yield problem
    counts.check(file.path)


def make_layout(
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    answer_from: str | None = None,
    where: Mapping[str, str | list[str]] | None = None,
    keep: Sequence[str] | None = None,
    files: str | Sequence[str] | None = None,
    max_tests: int | None = None,
) -> Layout:
    """Return the layout with these options; None keeps a default.

    Raises:
        ConfigError: `columns` has an unknown name.
    """
    try:
        known = _require_known(dict(columns or {}))
    except ValueError as error:
        raise ConfigError(f"columns: {error}") from error
    return Layout(
        columns=known,
        split=split,
        answer_from=answer_from,
        where={key: (value,) if isinstance(value, str) else tuple(value) for key, value in (where or {}).items()},
        keep=None if keep is None else tuple(keep),
        files=(files,) if isinstance(files, str) else tuple(files or ()),
        max_tests=max_tests,
    )


def read_problems(
    file: ProblemFile, *, download: bool = True, distinct: bool = True
) -> Iterator[Problem | InvalidRowError]:
    """Stream the problems of a file, and an `InvalidRowError` for each row that is not a problem or is skipped.

    Args:
        file: The file.
        download: Whether to download a dataset on the Hub first, instead of reading it over the network.
        distinct: Whether to skip copies of rows and reject repeated ids, which takes memory for each row.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    earlier = EarlierRows()
    layout = file.layout
    find_dataset = resolve_dataset if download else stream_dataset
    with file.errors():
        files = find_files(file.path, layout.split, find_dataset, layout.files)
    for location, row in numbered_rows(files, layout.fields):
        try:
            problem = layout.read(location, row)
            if problem is None:
                raise SkippedRowError(location, "filtered", "has another value than the filter accepts")
            if distinct:
                problem = earlier.add(location, problem, replaceable=layout.has_replaceable_id(row))
        except InvalidRowError as invalid:
            yield invalid
        else:
            yield problem


@dataclass(slots=True)
class RowCounts:
    """Counts of the rows of a file."""

    problems: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    """Numbers of invalid rows by reason."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Numbers of skipped rows by reason."""
    shown: list[InvalidRowError] = field(default_factory=list)
    """The first invalid rows."""

    def add(self, item: Problem | InvalidRowError) -> Problem | None:
        """Count a row, and return its problem if it has one."""
        if isinstance(item, Problem):
            self.problems += 1
            return item
        if isinstance(item, SkippedRowError):
            self.skipped[item.reason] += 1
        else:
            self.invalid[item.reason] += 1
            if len(self.shown) < _MAX_SHOWN:
                self.shown.append(item)
        return None

    def check(self, path: str) -> None:
        """Log the dropped rows.

        Raises:
            DataError: The file has no problems, or too many invalid rows.
        """
        invalid, rows = self.invalid.total(), self.problems + self.invalid.total()
        if invalid > MAX_INVALID_FRACTION * rows:
            raise DataError(
                f"{self.shown[0]} ({invalid} of {rows} rows are invalid: {count_reasons(self.invalid)}; "
                "`torl data prepare` drops them)"
            ) from self.shown[0]
        if not self.problems:
            left = f"; skipped: {count_reasons(self.skipped)}" if self.skipped else ""
            raise DataError(f"{path}: contains no problems{left}")
        if invalid:
            places = "; ".join(row.location.rsplit(", ", maxsplit=1)[1] for row in self.shown)
            _logger.warning(
                "%s: dropped %d of %d rows (%s): %s", path, invalid, rows, count_reasons(self.invalid), places
            )
        if self.skipped["copy"]:
            _logger.warning("%s: dropped %d copies of rows", path, self.skipped["copy"])
        if unusable := {name: n for name, n in self.skipped.items() if name not in ("copy", "filtered")}:
            _logger.warning("%s: dropped rows that cannot be judged: %s", path, count_reasons(unusable))


def count_reasons(counts: Mapping[str, int]) -> str:
    """Return counts by reason as text: "3 no answer, 1 not json"."""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items())
