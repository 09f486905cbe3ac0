"""From a TOML file and command-line overrides to a validated configuration, and back to TOML.

Every error names the file or option, the key, and the nearest key that exists.
"""

import argparse
import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from torl.errors import ConfigError

Config = TypeVar("Config", bound=BaseModel)


def fields_of(config_class: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, pydantic FieldInfo) for every leaf of a configuration tree, in the order of the source."""
    for name, info in config_class.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from fields_of(section, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def parse_command_line(config_class: type[Config], program: str, description: str, argv: Sequence[str]) -> Config:
    """Parse `CONFIG [--section.field value ...]`; `--help` prints every field with its docstring and exits.

    Raises:
        ConfigError: the file cannot be read, a key or option is unknown, or a value is not valid.
    """
    usage = f"{program} CONFIG [--section.field VALUE ...]"
    parser = argparse.ArgumentParser(usage=usage, description=description, allow_abbrev=False)
    parser.add_argument("config", metavar="CONFIG", type=Path, help="TOML file of the run")
    groups: dict[str, Any] = {}
    for name, info in fields_of(config_class):
        section = name.split(".")[0]
        if section not in groups:
            documentation = (config_class.model_fields[section].annotation.__doc__ or "").strip()
            groups[section] = parser.add_argument_group(section, documentation)
        flag: dict[str, Any] = {"nargs": "?", "const": "true"} if info.annotation is bool else {}
        metavar = _type_name(info.annotation)
        groups[section].add_argument(f"--{name}", metavar=metavar, help=_help_text(info), **flag)
    arguments, unknown = parser.parse_known_args(argv)
    names = [name for name, _ in fields_of(config_class)]
    overrides = {name: value for name, value in vars(arguments).items() if name != "config" and value is not None}
    overrides |= _parse_table_options(config_class, unknown, names, program)
    return load_config(config_class, arguments.config, overrides)


def load_config(config_class: type[Config], path: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """Read a TOML file, put `overrides` (dotted name to TOML value or plain text) on top, and validate the whole.

    Raises:
        ConfigError: see `parse_command_line`.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    overrides = overrides or {}
    for name, text in overrides.items():
        *parents, leaf = name.split(".")
        table = tree
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {parent} must be a table")
        table[leaf] = _parse_value(text)
    try:
        return config_class.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(config_class, path, overrides, item) for item in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def dump_config(config: BaseModel) -> str:
    """The resolved tree as TOML; unset optional fields are left out, so reading it back gives an equal tree."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _parse_table_options(
    config_class: type[BaseModel], unknown: Sequence[str], names: Sequence[str], program: str
) -> dict[str, str]:
    """Options that argparse cannot know because they name a key of a table: `--data.evaluation.NAME PATH`."""
    tables = [name for name, info in fields_of(config_class) if get_origin(info.annotation) is dict]
    overrides: dict[str, str] = {}
    words = iter(unknown)
    for word in words:
        option, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise ConfigError(f"{program}: unexpected argument {word!r}")
        if not any(option.startswith(f"{table}.") for table in tables):
            raise ConfigError(f"{program}: --{option} is unknown{nearest(option, names, '--')}")
        if not equals:
            value = next(words, "")
        if not value:
            raise ConfigError(f"{program}: --{option} needs a value")
        overrides[option] = value
    return overrides


def _explain(config_class: type[BaseModel], path: Path, overrides: Mapping[str, str], error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    source = f"--{name}" if name in overrides else f"{path}: {name or 'the configuration'}"
    if error["type"] == "extra_forbidden":
        return f"{source} is unknown{nearest(name, _known_keys(config_class))}"
    if error["type"] == "missing":
        return f"{source} is missing"
    message = error["msg"].removeprefix("Value error, ")
    given = "" if isinstance(error["input"], dict) else f" (given: {error['input']!r})"
    return f"{source}: {message}{given}"


def _known_keys(config_class: type[BaseModel]) -> list[str]:
    return [*config_class.model_fields, *(name for name, _ in fields_of(config_class))]


def nearest(name: str, names: Sequence[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: which one may have been meant; empty if none is close."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _type_name(annotation: Any) -> str:
    """A metavar: the choices of a Literal, the members of a union without None, the name of a plain type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "{" + ",".join(str(choice) for choice in arguments) + "}"
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is dict:
        return "TABLE"
    if origin is tuple:
        return "[" + ",".join(_type_name(argument) for argument in arguments) + "]"
    if arguments:
        return "|".join(_type_name(argument) for argument in arguments if argument is not type(None))
    return str(annotation.__name__).upper()


def _help_text(info: Any) -> str:
    default = "required" if info.default is PydanticUndefined else f"default: {_show_default(info.default)}"
    return f"{info.description} ({default})".replace("%", "%%")


def _show_default(default: Any) -> str:
    if default is None:
        return "unset"
    return str(default).lower() if isinstance(default, bool) else str(default)
