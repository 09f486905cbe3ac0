"""Commands that take a configuration: `CONFIG... [--section.setting VALUE ...]`, `--show` and `--help [SECTION]`."""

import argparse
from collections.abc import Sequence
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel

from torl.config.explain import did_you_mean, known_keys
from torl.config.fields import choice_at, fields_of
from torl.config.help import add_options, print_help
from torl.config.loading import dump_config, find_config, load_config
from torl.errors import ConfigError

Config = TypeVar("Config", bound=BaseModel)


def parse_command_line(config_class: type[Config], program: str, description: str, argv: Sequence[str]) -> Config:
    """Parse `CONFIG... [--section.setting VALUE ...]`. `--help` and `--show` print and exit.

    Raises:
        ConfigError: A file cannot be read, a key or option is unknown, or a value is invalid.
    """
    usage = f"{program} CONFIG... [--section.setting VALUE ...]"
    parser = argparse.ArgumentParser(usage=usage, description=description, allow_abbrev=False, add_help=False)
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="+",
        help="TOML file, directory of a run, or preset (`torl presets`); later ones override earlier ones",
    )
    parser.add_argument("--show", action="store_true", help="print the resolved configuration as TOML, and exit")
    arguments, overrides = parse_with_overrides(parser, config_class, program, argv)
    config = load_config(config_class, [find_config(name) for name in arguments.config], overrides)
    if arguments.show:
        print(dump_config(config), end="")
        raise SystemExit(0)
    return config


def parse_with_overrides(
    parser: argparse.ArgumentParser, config_class: type[BaseModel], program: str, argv: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return a command's own arguments, and the settings on its command line by dotted name.

    Args:
        parser: Parser with the command's own arguments, made with `add_help=False`.
        config_class: Root class of the configuration tree.
        program: Name of the command, for messages.
        argv: Words of the command line. `--help [SECTION]` prints help and exits.

    Raises:
        ConfigError: An option is unknown or has no value.
    """
    topics = [index + 1 for index, word in enumerate(argv) if word in ("-h", "--help")]
    if topics:
        topic = next((word for word in argv[topics[0] :] if not word.startswith("-")), "")
        print_help(parser, config_class, program, topic)
        raise SystemExit(0)
    add_options(parser, config_class)
    arguments, unknown = parser.parse_known_args(argv)
    values = {name: value for name, value in vars(arguments).items() if value is not None}
    settings = {name: value for name, value in values.items() if "." in name or name in config_class.model_fields}
    return arguments, settings | _parse_open_options(config_class, unknown, program)


def _parse_open_options(config_class: type[BaseModel], unknown: Sequence[str], program: str) -> dict[str, str]:
    """Parse options that argparse cannot know: keys of tables, such as `--data.evaluation.NAME PATH`, and options of
    custom classes and functions."""
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
            raise ConfigError(f"{program}: --{option} is unknown{did_you_mean(option, known_keys(config_class), '--')}")
        if not equals:
            value = next(words, "")
        if not value:
            raise ConfigError(f"{program}: --{option} needs a value")
        overrides[option] = value
    return overrides
