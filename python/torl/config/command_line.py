"""From a TOML file and command-line overrides to a validated configuration, and back to TOML.

Every error names the file or option, the key, and the nearest key that exists.
"""

import argparse
import sys
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from torl.config.fields import choice_at, fields_of, holds_text, option_names_at
from torl.config.help import add_arguments
from torl.errors import ConfigError
from torl.options import suggestion
from torl.runtime.processes.supervision import run_until_done

Config = TypeVar("Config", bound=BaseModel)

_PACKAGE = Path(__file__).parents[1]


def run_command(
    config_class: type[Config],
    program: str,
    description: str,
    work: Callable[[Config], Coroutine[Any, Any, object]],
    arguments: Sequence[str] | None = None,
) -> int:
    """Read the command line, do the work, return the exit status (`run_until_done`; 2: wrong configuration)."""
    try:
        config = parse_command_line(
            config_class, program, description, sys.argv[1:] if arguments is None else arguments
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_until_done(work(config))


def parse_command_line(config_class: type[Config], program: str, description: str, argv: Sequence[str]) -> Config:
    """Parse `CONFIG [--section.field value ...]`; `--help` prints every field with its docstring and exits.

    Raises:
        ConfigError: the file cannot be read, a key or option is unknown, or a value is not valid.
    """
    usage = f"{program} CONFIG [--section.field VALUE ...]"
    parser = argparse.ArgumentParser(usage=usage, description=description, allow_abbrev=False)
    parser.add_argument("config", metavar="CONFIG", help="TOML file, directory of a run, or name of a preset")
    arguments, overrides = parse_with_overrides(parser, config_class, program, argv)
    return load_config(config_class, find_config(arguments.config), overrides)


def parse_with_overrides(
    parser: argparse.ArgumentParser, config_class: type[BaseModel], program: str, argv: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """A command's own arguments, and what its command line says of fields of a configuration, by dotted name.

    Raises:
        ConfigError: an option is unknown or has no value.
    """
    add_arguments(parser, config_class)
    arguments, unknown = parser.parse_known_args(argv)
    said = {name: value for name, value in vars(arguments).items() if value is not None}
    fields = {name: value for name, value in said.items() if "." in name or name in config_class.model_fields}
    return arguments, fields | _parse_open_options(config_class, unknown, program)


def presets() -> dict[str, Path]:
    """Return the configurations that torl ships, by name: the demo, and the runs of each recipe.

    A recipe's `config.toml` has the name of its folder, any other TOML file its own.
    """
    files = sorted((*_PACKAGE.glob("presets/*.toml"), *_PACKAGE.glob("recipes/*/*.toml")))
    return {file.parent.name if file.name == "config.toml" else file.stem: file for file in files}


def find_config(given: str | Path) -> Path:
    """Return the file that CONFIG names: a path, a run's directory, or a preset of torl ("torl_7b").

    Raises:
        ConfigError: There is no such file, and no preset of that name; names the nearest preset.
    """
    path = Path(given)
    known_presets = presets()
    if (path / "config.toml").is_file():
        return path / "config.toml"
    if str(given) in known_presets and not path.is_file():
        return known_presets[str(given)]
    if path.is_dir():
        return path / "config.toml"
    if path.exists() or path.suffix == ".toml" or len(path.parts) != 1:
        return path
    known = suggestion(path.name, list(known_presets)) or f"; the presets are: {', '.join(sorted(known_presets))}"
    raise ConfigError(f"{given}: no such file, and no preset of that name{known}")


def load_config(config_class: type[Config], path: Path | None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file, put `overrides` (dotted name to value, or to the text of one) on top, and validate the whole.

    Without a file there are the overrides alone.

    Raises:
        ConfigError: see `parse_command_line`.
    """
    tree = {} if path is None else _read_toml(path)
    texts = {name for name, info in fields_of(config_class) if holds_text(info.annotation)}
    values = {
        name: _parse_value(value, name in texts) if isinstance(value, str) else value
        for name, value in (overrides or {}).items()
    }
    return validate_config(config_class, tree, values, source="the command line" if path is None else str(path))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def validate_config(
    config_class: type[Config], tree: dict[str, Any], overrides: Mapping[str, Any], *, source: str
) -> Config:
    """The configuration that a tree makes with `overrides` (by dotted names) on top of it.

    Raises:
        ConfigError: a key is unknown or a value not valid; names `source`, the key and the nearest one.
    """
    for name in sorted(overrides, key=lambda name: (not name.endswith(".name"), name.count("."))):
        _override(config_class, tree, name, overrides[name], source)
    try:
        return config_class.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(config_class, tree, source, overrides, item) for item in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def dump_config(config: BaseModel) -> str:
    """The resolved tree as TOML; unset optional fields are left out, so reading it back gives an equal tree."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _override(config_class: type[BaseModel], tree: dict[str, Any], name: str, value: Any, source: str) -> None:
    *parents, leaf = name.split(".")
    table = tree
    for depth, parent in enumerate(parents, start=1):
        choice = choice_at(config_class, parents[:depth])
        if choice is not None and parent in table:
            table[parent] = choice.expand(table[parent])
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{source}: {'.'.join(parents[:depth])} must be a table")
    choice = choice_at(config_class, parents)
    if leaf == "name" and choice is not None and table.get("name", choice.default or parents[-1]) != value:
        table.clear()  # the options of another choice
    table[leaf] = value


def _parse_value(text: str, is_text: bool) -> Any:
    """What a TOML file would hold for it; the text itself if it is no TOML, or a number where a text belongs."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if is_text and not isinstance(value, str) else value


def _parse_open_options(config_class: type[BaseModel], unknown: Sequence[str], program: str) -> dict[str, str]:
    """Options that argparse cannot know: keys of tables (`--data.evaluation.NAME PATH`), options of one's own."""
    names = [name for name, _ in fields_of(config_class)]
    open_ended = [name for name, info in fields_of(config_class) if get_origin(info.annotation) is dict]
    open_ended += [name for name in names if choice_at(config_class, name.split(".")) is not None]
    overrides: dict[str, str] = {}
    words = iter(unknown)
    for word in words:
        option, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise ConfigError(f"{program}: unexpected argument {word!r}")
        if not any(option.startswith(f"{name}.") for name in open_ended):
            raise ConfigError(f"{program}: --{option} is unknown{suggestion(option, _known_keys(config_class), '--')}")
        if not equals:
            value = next(words, "")
        if not value:
            raise ConfigError(f"{program}: --{option} needs a value")
        overrides[option] = value
    return overrides


def _explain(
    config_class: type[BaseModel], tree: Mapping[str, Any], source: str, overrides: Mapping[str, Any], error: Any
) -> str:
    path = [str(part) for part in error["loc"]]
    name = ".".join(path)
    option = next((each for each in (name, f"{name}.name") if each in overrides), None)
    where = f"--{option}" if option else f"{source}: {name}" if name else source
    prefix = "--" if option else ""
    if error["type"] == "extra_forbidden":
        choice = choice_at(config_class, path[:-1])
        if choice is None:
            return f"{where} is unknown{suggestion(name, _known_keys(config_class), prefix)}"
        others = [other for other, options in choice.all_options().items() if path[-1] in options]
        if others:
            return f"{where} is an option of {', '.join(others)}, and not of the {choice.kind} chosen here"
        own = [".".join([*path[:-1], each]) for each in option_names_at(config_class, tree, path[:-1])]
        return f"{where} is unknown{suggestion(name, own, prefix)}"
    if error["type"] == "missing":
        return f"{where} is missing"
    message = error["msg"].removeprefix("Value error, ")
    given = "" if isinstance(error["input"], dict) else f" (given: {error['input']!r})"
    return f"{where}: {message}{given}"


def _known_keys(config_class: type[BaseModel]) -> list[str]:
    return [*config_class.model_fields, *_dotted(config_class)]


def _dotted(config_class: type[BaseModel]) -> Iterator[str]:
    for name, _ in fields_of(config_class):
        yield name
        choice = choice_at(config_class, name.split("."))
        if choice is not None:
            yield f"{name}.name"
            yield from {f"{name}.{option}" for options in choice.all_options().values() for option in options}
