"""Sections of a configuration, the types of their fields, and TOML files: errors name the file and the remedy."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from typing_extensions import is_typeddict

from torl.base import inputs
from torl.base.errors import ConfigError

_YAML = re.compile(r"^(---\s*$|[\w.-]+:(\s|$))", re.MULTILINE)

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""A random seed. Libraries take 32 bits, and some add the number of a rank."""
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["float32", "bfloat16"]


def _expand_path(value: Any) -> Any:
    if value == "":
        raise ValueError("an empty path is the current directory: name a directory or a file")
    try:
        return Path(value).expanduser() if isinstance(value, str | Path) else value
    except RuntimeError as error:
        raise ValueError(f"{error}: write the directory instead of ~") from error


OutputPath = Annotated[Path, BeforeValidator(_expand_path)]
"""A path to write to. A leading `~` is the home directory: shells do not expand it after `=`, nor in files."""


class Section(BaseModel):
    """Base class of sections: immutable, without unknown keys, described by the docstrings below the fields."""

    # Deferred: `--help` shows every section and validates none.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, defer_build=True
    )

    @classmethod
    def settings_of_file(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings of a file of configuration that count for this root class: by default all."""
        return tree

    def check_within(self, config: Any) -> None:
        """Raise ValueError if these options of a choice contradict the rest of the configuration."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans_as_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `steps = true`, which pydantic would read as 1."""
        assert info.field_name is not None
        annotation = cls.model_fields[info.field_name].annotation
        if _has_number(annotation) and _refuses(annotation, value):
            raise PydanticCustomError("boolean_as_number", "Input should be a number, not a boolean")
        return value


def _has_number(annotation: Any) -> bool:
    return annotation in (int, float) or is_typeddict(annotation) or any(map(_has_number, get_args(annotation)))


def _refuses(annotation: Any, value: Any) -> bool:
    """Whether a boolean, or one in a list or a table, has no place in an annotation, of the types of settings."""
    origin, members = get_origin(annotation), get_args(annotation)
    if is_typeddict(annotation):
        types = get_type_hints(annotation)
        return isinstance(value, Mapping) and any(_refuses(types.get(name), each) for name, each in value.items())
    if origin is Annotated:
        return _refuses(members[0], value)
    if origin in (Union, UnionType):
        return all(_refuses(member, value) for member in members)
    if isinstance(value, bool):
        if origin is Literal:
            return value not in [member for member in members if isinstance(member, bool)]
        return annotation in (int, float, str, NoneType) or origin in (list, tuple, dict, Sequence, Mapping)
    if origin is tuple and isinstance(value, list | tuple) and Ellipsis not in members:
        return any(map(_refuses, members, value))
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        return any(_refuses(members[0], each) for each in value)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return any(_refuses(members[1], each) for each in value.values())
    return False


def suggestion(name: str, names: Sequence[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" for an unknown name, or an empty text without a close match."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def dotted_leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration tree by their dotted names, after `prefix`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted_leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not valid TOML.
    """
    return parse_toml(path, read_text(path))


def read_text(path: Path) -> str:
    """Read the text of a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8.
    """
    try:
        return inputs.decode_utf8(inputs.read_file(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {inputs.reason(error)}") from error


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of a TOML file.

    Raises:
        ConfigError: The text is not valid TOML.
    """
    try:
        return inputs.parse_toml(text)
    except ValueError as error:
        hint = "; it looks like YAML: write `[section]` and `key = value`" if _YAML.search(text) else ""
        raise ConfigError(f"{path}: not valid TOML: {error}{hint}") from error
