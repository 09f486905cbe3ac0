"""Sources of examples for fine-tuning: rows of files, of datasets on the Hub, and of runs."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.base.errors import DataError
from torl.base.guard import InvalidResultError
from torl.base.guard import describe as describe_value
from torl.base.options import suggestion
from torl.components.data.examples import EXAMPLE_FIELDS, EXAMPLE_FORMATS
from torl.components.data.files import find_files, numbered_rows
from torl.components.data.rows import TOOL_FIELDS, InvalidRowError, describe, is_missing
from torl.components.data.values import PlainRow, plain, require_value
from torl.components.hub import resolve_dataset
from torl.components.hub.datasets import file_format

ExampleRow: TypeAlias = tuple[str, Mapping[str, Any] | DataError]
"""The id of an example, such as its location ("train.jsonl, line 3"), and its fields, or why the row is invalid."""

ExampleSource: TypeAlias = Callable[[], Iterable[ExampleRow]]
"""A source of examples: a function of its own options that returns pairs of id and fields."""

_TRAJECTORIES = "trajectories"  # of a run directory
# Of dialogues. Arrow gives each object the members of all others, with null for those that it does not have.
_UNIFIED_FIELDS = ("messages", "conversations", "prompt", "completion", "response", "segments", *TOOL_FIELDS)
_ARROW = (".parquet", ".arrow")
_TEXTS = ("content", "value")  # of a message; null is an empty text


def example_rows(
    path: str | tuple[str, ...],
    split: str | None = None,
    files: str | tuple[str, ...] = (),
    columns: dict[str, str] | None = None,
    ignore: str | tuple[str, ...] = (),
) -> Iterator[ExampleRow]:
    """Yield the rows of example files. Ids do not depend on the directory that the files are in.

    Args:
        path: File, as of problems, dataset on the Hub (hf:owner/name), or run, whose training trajectories
            are read; or several of them.
        split: Split of a dataset. The default is "train".
        files: Patterns of the files of a dataset, instead of a split, such as "data/math/*".
        columns: Columns of the fields of a format, if they have other names: { response = "answer" }. The row is read
            in this format, also if it has the fields of another one.
        ignore: Fields of rows and of their messages that are left out, though they might change the prompt or the loss:
            ["images", "loss_mask"].

    Raises:
        DataError: A file is missing, empty or damaged, or `columns` has the name of no field.
    """
    for name in columns or ():
        if name not in EXAMPLE_FIELDS:
            raise DataError(
                f"columns: {name!r} is not a field of any format of examples{suggestion(name, sorted(EXAMPLE_FIELDS))}"
            )
    sources = (path,) if isinstance(path, str) else path
    patterns = (files,) if isinstance(files, str) else files
    ignored = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    for number, source in enumerate(sources, start=1):
        found = _find(source, split, patterns)
        prefix = f"source {number}, " if len(sources) > 1 else ""
        parent = os.path.commonpath([file.parent for file in found])
        is_empty = True
        for location, value in numbered_rows(found):
            is_empty = False
            name = prefix + location.removeprefix(f"{parent}/")
            try:
                fields = _fields(name, value, columns or {}, unified=file_format(found[0].name)[0] in _ARROW)
                yield name, _without(fields, ignored) if ignored else fields
            except InvalidRowError as invalid:
                yield name, invalid
        if is_empty:
            raise DataError(f"{source}: contains no examples")


def _find(source: str, split: str | None, patterns: tuple[str, ...]) -> list[Path]:
    recorded = Path(source).expanduser() / _TRAJECTORIES
    if recorded.is_dir():
        if found := sorted(recorded.glob("step_*.jsonl")):
            return found
        raise DataError(f"{source}: contains no examples")
    return [Path(str(file)).absolute() for file in find_files(source, split, resolve_dataset, patterns)]


def _fields(location: str, row: Any, columns: Mapping[str, str], *, unified: bool) -> Mapping[str, Any]:
    if isinstance(row, InvalidRowError):
        raise row
    if not isinstance(row, dict):
        raise InvalidRowError(location, "not_an_object", f"an example must be an object, got {describe(row)}")
    given: dict[str, Any] = plain(row)
    fields = PlainRow((name, value) for name, value in given.items() if name not in columns.values())
    fields |= {name: require_value(location, given, column) for name, column in columns.items()}
    for name in _fields_of_other_formats(fields, columns):
        del fields[name]
    if unified:
        fields |= {name: _without_nulls(fields[name], _TEXTS) for name in _UNIFIED_FIELDS if name in fields}
    return fields


def _fields_of_other_formats(fields: Mapping[str, Any], columns: Collection[str]) -> set[str]:
    """Return the fields by which the row would be read in another format than the one with most of these columns."""
    every = (form.fields for form in EXAMPLE_FORMATS)
    formats = [names for names in every if not any(is_missing(fields.get(name)) for name in names)]
    if not formats:
        return set()
    chosen = max(formats, key=lambda names: sum(name in columns for name in names))
    return {name for names in formats[: formats.index(chosen)] for name in names} - {*chosen}


def _without(fields: Mapping[str, Any], ignored: Collection[str]) -> PlainRow:
    """Return a row without these fields, also of the objects in its lists."""
    return PlainRow(
        (
            name,
            [_without(member, ignored) if isinstance(member, dict) else member for member in value]
            if isinstance(value, list)
            else value,
        )
        for name, value in fields.items()
        if name not in ignored
    )


def _without_nulls(value: Any, kept: Collection[str] = ()) -> Any:
    """Return a value without the null members of its objects; of objects in an outer list, those in `kept` remain."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None or name in kept}
    return [_without_nulls(member, kept) for member in value] if isinstance(value, list) else value


EXAMPLE_SOURCES: Mapping[str, Callable[..., Iterable[ExampleRow]]] = MappingProxyType({"file": example_rows})
"""The example sources by the names that a configuration calls them."""


def check_example(example: object) -> None:
    """Raise `InvalidResultError` if an example of a custom source is not a pair of an id and fields."""
    pair = example if isinstance(example, tuple) and len(example) == 2 else (None, None)
    if not isinstance(pair[0], str) or not isinstance(pair[1], Mapping | DataError):
        raise InvalidResultError(
            f"expected a pair of an id and the fields of an example, got {describe_value(example)}"
        )
