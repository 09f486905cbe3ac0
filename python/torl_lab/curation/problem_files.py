"""Problem files: public sets by name, arguments of a command that name files and their layouts, and encoding."""

import argparse
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.base.options import suggestion
from torl.base.types import Problem
from torl.base.types.problems import TESTS
from torl.components.data.layout import FIELDS, Layout
from torl.components.data.problems import make_layout
from torl.components.data.public_sets import PublicSet, public_sets
from torl.components.hub.datasets import without_suffixes
from torl.components.programs.forms_rows import ROW_FORMS
from torl.run.records.files import write_if_changed
from torl.run.records.reading import read_rows

_READ_FIRST = frozenset({"problem", "answer", "id", "reward_model"})
"""Columns that a problem is read from: in the metadata, they are columns of the raw file that others replaced."""
_UNKNOWN = "not recorded"
_OPTIONS = {
    "column": (
        "[NAME:]FIELD=COLUMN",
        "column of the field problem, answer, id, pass_rate or tests: answer=solution.text",
    ),
    "split": ("[NAME:]SPLIT", "split of a dataset (default: train)"),
    "files": ("[NAME:]PATTERN", "files of a dataset, instead of a split: main/test*"),
    "answer_from": (
        "[NAME:]COLUMN",
        "column to derive the answer from: the box of a solution, or its text after ####; any member of a list",
    ),
    "where": ("[NAME:]COLUMN=VALUE", "value of a column; rows with other values are skipped"),
    "keep": ("[NAME:]COLUMN,COLUMN", "columns to keep in addition to the problem (default: all)"),
    "max_tests": ("[NAME:]N", "tests of a problem to keep: public ones, and the longest inputs (default: all)"),
}


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the layout of files, each for all files or for the file NAME."""
    for name, (metavar, text) in _OPTIONS.items():
        parser.add_argument(_flag(name), metavar=metavar, action="append", default=[], help=text)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def find_layouts(
    arguments: argparse.Namespace, labels: Collection[str], others: Collection[str] = ()
) -> dict[str, Layout]:
    """Return the layouts of files by label.

    Args:
        arguments: Values of the options of `add_layout_arguments`.
        labels: Labels of the files that options without a name apply to.
        others: Labels of files to which only options with their name apply.

    Raises:
        ConfigError: An option is malformed or names an unknown file.
    """
    options = {option: _by_file(option, getattr(arguments, option), labels, others) for option in _OPTIONS}
    return {
        label: _layout({option: values[label] for option, values in options.items()}) for label in (*labels, *others)
    }


def label_files(names: Sequence[str]) -> dict[str, str]:
    """Return names of files by label. Labels of files with equal names include the directory.

    Raises:
        ConfigError: Two files have the same label.
    """
    labels = [_label(name) for name in names]
    labels = [
        f"{Path(name).parent.name}-{label}" if labels.count(label) > 1 else label
        for name, label in zip(names, labels, strict=True)
    ]
    if duplicate := next((label for label in labels if labels.count(label) > 1), None):
        raise ConfigError(f"several files are called {duplicate}, which names the source of their problems: rename one")
    return dict(zip(labels, names, strict=True))


def _label(name: str) -> str:
    public = name.partition("=")[0].partition("@")[0]
    return public if public in public_sets() else without_suffixes(Path(name).name)


def _layout(options: Mapping[str, Sequence[str]]) -> Layout:
    """Return a layout; of an option with one value, the last one counts."""
    where: dict[str, list[str]] = {}
    for condition in options["where"]:
        column, equals, value = condition.partition("=")
        if not column or not equals:
            raise ConfigError(f"--where must be COLUMN=VALUE, got {condition!r}")
        where.setdefault(column, []).append(value)
    keep = next(reversed(options["keep"]), None)
    max_tests = next(reversed(options["max_tests"]), None)
    if max_tests is not None and not (max_tests.isdecimal() and int(max_tests) > 0):
        raise ConfigError(f"--max-tests must be a positive integer, got {max_tests!r}")
    return make_layout(
        columns=dict(map(_field_and_column, options["column"])),
        split=next(reversed(options["split"]), None),
        files=options["files"],
        answer_from=next(reversed(options["answer_from"]), None),
        where=where,
        keep=None if keep is None else [name for name in keep.split(",") if name],
        max_tests=None if max_tests is None else int(max_tests),
    )


def _by_file(
    option: str, arguments: Sequence[str], labels: Collection[str], others: Collection[str]
) -> dict[str, list[str]]:
    """Return the values for each file, after the values for all files."""
    common: list[str] = []
    specific: dict[str, list[str]] = {name: [] for name in (*labels, *others)}
    for argument in arguments:
        name, colon, value = argument.partition(":")
        if colon and name in specific:
            specific[name].append(value)
        elif colon and "=" not in name:
            names = ", ".join(sorted(specific))
            raise ConfigError(f"{_flag(option)} {argument}: unknown file {name!r}; the files are {names}")
        else:
            common.append(argument)
    return {name: common * (name in labels) + values for name, values in specific.items()}


def _field_and_column(argument: str) -> tuple[str, str]:
    field, _, column = argument.partition("=")
    if field not in FIELDS or not column:
        raise ConfigError(f"--column must be FIELD=COLUMN with FIELD one of {', '.join(FIELDS)}, got {argument!r}")
    return field, column


def encode_problems(problems: Iterable[Problem]) -> bytes:
    """Encode problems as JSON lines: id, problem, answer, and metadata that does not name one of them."""
    return encode_rows(
        {"id": problem.id, "problem": problem.question, "answer": problem.answer}
        | {name: value for name, value in problem.metadata.items() if name not in _READ_FIRST}
        for problem in problems
    )


def read_appended(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that grows, without an incomplete last line of a killed command, which is removed.

    Raises:
        RecordError: A complete line is damaged, or the file cannot be read or written.
    """
    if not path.exists():
        return []
    rows = list(read_rows(path))
    write_if_changed(path, encode_rows(rows))
    return rows


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode rows as JSON lines. Values that JSON lacks, such as the dates of a parquet file, become text."""
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


def list_sources(argv: Sequence[str]) -> int:
    """Print the table of public sets, or all that is known of some, and return the exit status."""
    parser = argparse.ArgumentParser("torl data sources", description="List the public sets that torl knows by name.")
    parser.add_argument("names", metavar="SET", nargs="*", help="sets to describe in full (default: a table of all)")
    names = parser.parse_args(argv).names
    unknown = [name for name in names if name not in public_sets()]
    if unknown:
        hint = suggestion(unknown[0], list(public_sets()))
        print(f"error: unknown set {unknown[0]!r}{hint}; see torl data sources", file=sys.stderr)
        return 2
    lines = [_describe(public_sets()[name]) for name in names] if names else _table()
    print("\n".join(lines))
    return 0


def _table() -> Iterator[str]:
    for purpose in ("training", "evaluation"):
        sets = [public for public in public_sets().values() if public.purpose == purpose]
        yield f"{purpose:<17} {'rows':>9}  {'license':<24}{'address'}"
        for public in sets:
            rows = "?" if public.rows is None else f"{public.rows:,}"
            address = public.address or public.location or _UNKNOWN
            yield f"  {public.name:<15} {rows:>9}  {public.license or _UNKNOWN:<24}{address}"
        yield ""
    yield "torl data sources SET shows how its rows are read. Licenses are those of the sets' own pages."


def _describe(public: PublicSet) -> str:
    """Return all that is known of a set, a line for each."""
    layout = public.layout
    answer = f"derived from {layout.answer_from}" if layout.answer_from else layout.columns.get("answer", "answer")
    if layout.tests or TESTS in layout.columns:
        answer = f"none; tests from {layout.columns.get(TESTS) or ', '.join(ROW_FORMS[str(layout.tests)].columns)}"
    where = ", ".join(f"{column} = {' or '.join(values)}" for column, values in layout.where.items())
    described = {
        "title": public.title,
        "address": public.address or public.location,
        "revision": public.revision,
        "license": public.license,
        "files": ", ".join(layout.files) or f"split {layout.split or 'train'}",
        "rows": None if public.rows is None else f"{public.rows:,}",
        "question": layout.columns.get("problem", "problem or question, or verl's prompt"),
        "answer": answer if layout.columns or layout.answer_from else f"{answer}, or verl's reward_model.ground_truth",
        "choices": ", ".join(layout.choices),
        "removed": "\n".join(layout.instructions),
        "rows kept": where,
        "columns kept": "all" if layout.keep is None else ", ".join(layout.keep) or "none",
        "note": public.note,
    }
    lines = [
        f"  {label:<13}{_UNKNOWN if value is None else value}".replace("\n", "\n" + " " * 15)
        for label, value in described.items()
        if value != ""
    ]
    return "\n".join([public.name, *lines, ""])
