"""Public sets of problems by name, and the names that stand for problem files: `math500`, `math500=FILE`, `hf:...`."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from torl.base.errors import DataError
from torl.components.data.layout import Layout
from torl.components.hub import DATASET_PREFIX, pinned_dataset

_TOLERANCE = 0.02  # of the expected number of rows


@dataclass(frozen=True, slots=True)
class PublicSet:
    """A public set of problems. `None` means that a value was not recorded."""

    name: str
    title: str
    purpose: str
    """ "training" or "evaluation"."""
    layout: Layout
    address: str | None = None
    """Name of the dataset on the Hub, owner/name."""
    location: str | None = None
    """Location of a set that is not on the Hub."""
    revision: str | None = None
    """Revision on the Hub. None reads the current one, which `prepare` records."""
    license: str | None = None
    rows: int | None = None
    """Expected number of rows."""
    note: str = ""

    def has_expected_rows(self, rows: int) -> bool:
        """Whether a number of rows is within 2 % of the expected number, or none was recorded."""
        return self.rows is None or abs(rows - self.rows) <= _TOLERANCE * self.rows


@cache
def public_sets() -> Mapping[str, PublicSet]:
    """Return the public sets by name, from `public_sets.toml`."""
    table = tomllib.loads(
        resources.files("torl.components.data").joinpath("public_sets.toml").read_text(encoding="utf-8")
    )
    return MappingProxyType({name: _public_set(name, row) for name, row in table.items()})


def _public_set(name: str, row: dict[str, Any]) -> PublicSet:
    own = {field.name for field in fields(Layout)} & row.keys()
    layout: dict[str, Any] = {key: tuple(row[key]) if isinstance(row[key], list) else row[key] for key in own}
    layout["where"] = {key: tuple(values) for key, values in row.get("where", {}).items()}
    return PublicSet(name=name, layout=Layout(**layout), **{key: row[key] for key in row.keys() - own})


@dataclass(frozen=True, slots=True)
class ProblemFile:
    """A problem file or a dataset, with its layout."""

    path: str
    """Path on disk or in the package, or name on the Hub with the prefix `hf:`."""
    layout: Layout
    public: PublicSet | None = None
    """The public set that the file is, if it was named by it."""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Add to the `DataError` of a public set that is unavailable how to name a copy of it."""
        try:
            yield
        except DataError as error:
            if self.public is None or not self.path.startswith(DATASET_PREFIX):
                raise
            raise DataError(f"{error}, as {self.public.name}=DIRECTORY") from error


def find_problem_file(name: str, options: Layout | None = None) -> ProblemFile:
    """Return the file that a name stands for.

    Args:
        name: Name of a public set, optionally with `@revision`; `SET=FILE` for a copy of it; or a file, a directory
            or a dataset on the Hub (`hf:owner/name`). A directory with the name of a set is `./math`.
        options: Parts of the layout that replace those of the public set.

    Raises:
        DataError: The set is not on the Hub, and no file is named.
    """
    label, _, path = name.partition("=")
    label, _, revision = label.partition("@")
    public = public_sets().get(label)
    options = options or Layout()
    if public is None:
        return ProblemFile(name, options)
    if not path and public.address is None:
        location = public.location or "its address was not recorded"
        raise DataError(f"{label} is not on the Hub ({location}): download it and write {label}=FILE")
    commit = revision or public.revision
    address = f"{DATASET_PREFIX}{public.address}" + (f"@{commit}" if commit else "")
    return ProblemFile(path or address, _overridden(public.layout, options), public)


def pinned_problems(name: str) -> str:
    """Return the name of a problem file with the commit of its dataset on the Hub, if it is there.

    Raises:
        DataError: The dataset is unavailable.
    """
    label, equals, path = name.partition("=")
    label = label.partition("@")[0]
    if label not in public_sets():
        return pinned_dataset(name)
    if equals:
        return f"{label}={pinned_dataset(path)}"
    file = find_problem_file(name)
    with file.errors():
        commit = pinned_dataset(file.path).partition("@")[2]
    return f"{label}@{commit}" if commit else name


def _overridden(layout: Layout, options: Layout) -> Layout:
    """Return a layout with the parts of another that are set. A column of the answer replaces a derived answer."""
    changed = {field.name: getattr(options, field.name) for field in fields(Layout)}
    defaults = {field.name: getattr(Layout(), field.name) for field in fields(Layout)}
    changed = {name: value for name, value in changed.items() if value != defaults[name]}
    if "columns" in changed:
        changed["columns"] = {**layout.columns, **options.columns}
        if "answer" in options.columns and options.answer_from is None:
            changed["answer_from"] = None
    if "where" in changed:
        changed["where"] = {**layout.where, **options.where}
    if "split" in changed:
        changed["files"] = options.files
    return replace(layout, **changed)
