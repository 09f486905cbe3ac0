"""Commands that take a configuration: `CONFIG... [--section.setting VALUE ...]`, `--show` and `--help [SECTION]`."""

import argparse
import sys
from collections.abc import Callable, Sequence, Set
from operator import attrgetter
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel
from typing_extensions import is_typeddict

from torl.base.errors import ConfigError
from torl.base.trust import add_trust_option, is_reading, require_nothing_refused, require_trust, trust_own_files
from torl.run.config.explain import did_you_mean, known_keys
from torl.run.config.fields import choice_at, fields_of
from torl.run.config.help import add_options, print_help
from torl.run.config.loading import find_config, ignored_settings, load_config, read_layers
from torl.run.config.training import ModelRunConfig

Config = TypeVar("Config", bound=ModelRunConfig)


def parse_command_line(
    config_class: type[Config],
    program: str,
    description: str,
    argv: Sequence[str],
    check: Callable[[Config], None] | None = None,
) -> Config:
    """Parse `CONFIG... [--section.setting VALUE ...]`. `--help` and `--show` print and exit.

    The directory of a run as CONFIG needs `--trust` in a command that reads runs (`torl.base.trust`).

    Raises:
        ConfigError: A file cannot be read, a key or option is unknown, or a value is invalid.
    """
    return parse_config(config_parser(program, description), config_class, program, argv, check)[0]


def config_parser(program: str, description: str, usage: str = "") -> argparse.ArgumentParser:
    """Return the parser of a command that takes configurations, to which the command may add its own arguments."""
    parser = argparse.ArgumentParser(
        usage=f"{program} CONFIG... {usage}[--section.setting VALUE ...]",
        description=description,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="+",
        help="TOML file, directory of a run, or preset (`torl presets`); later ones override earlier ones",
    )
    parser.add_argument("--show", action="store_true", help="print the resolved configuration as TOML, and exit")
    if is_reading():
        add_trust_option(parser)
    return parser


def parse_config(
    parser: argparse.ArgumentParser,
    config_class: type[Config],
    program: str,
    argv: Sequence[str],
    check: Callable[[Config], None] | None = None,
) -> tuple[Config, argparse.Namespace]:
    """Parse a command line with a `config_parser`, and return the configuration and the command's own arguments.

    `check` is a check of the start that needs no model. `--show` makes it, too.

    Raises:
        ConfigError: A file cannot be read, a key or option is unknown, or a value is invalid.
    """
    arguments, overrides = parse_with_overrides(parser, config_class, program, argv)
    trust_own_files(arguments.config, trust=is_reading() and arguments.trust)
    files = [find_config(name) for name in arguments.config]
    config = load_config(config_class, files, overrides)
    require_nothing_refused()
    for name in config_class.outputs:
        if name not in overrides:
            require_trust(str(attrgetter(name)(config)), "written to")
    for line in ignored_settings(config_class, [layer for file in files for layer in read_layers(file)], overrides):
        print(line, file=sys.stderr)
    if arguments.show:
        if check is not None:
            check(config)
        print(config, end="")
        raise SystemExit(0)
    return config, arguments


def parse_with_overrides(
    parser: argparse.ArgumentParser, config_class: type[ModelRunConfig], program: str, argv: Sequence[str]
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
    names = add_options(parser, config_class)
    words, open_options = _split_open_options(config_class, names, program, argv)
    words = _with_negative_infinity(words, names)
    arguments, unknown = parser.parse_known_args(words)
    for word in unknown:
        option = word.removeprefix("--").partition("=")[0]
        if word.startswith("--"):
            raise ConfigError(f"{program}: --{option} is unknown{did_you_mean(option, known_keys(config_class), '--')}")
        raise ConfigError(f"{program}: unexpected argument {word!r}")
    values = {name: value for name, value in vars(arguments).items() if value is not None}
    settings = {name: value for name, value in values.items() if "." in name or name in config_class.model_fields}
    return arguments, settings | open_options


def _with_negative_infinity(words: Sequence[str], names: Set[str]) -> list[str]:
    """Join an option and the value -inf or -nan, which argparse would take for another option."""
    joined: list[str] = []
    for word in words:
        if word.lower() in ("-inf", "-infinity", "-nan") and joined and joined[-1].removeprefix("--") in names:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _split_open_options(
    config_class: type[BaseModel], names: Set[str], program: str, argv: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Take the options that argparse cannot know out of a command line, with their values.

    These are keys of tables, such as `--data.evaluation.NAME PATH`, and options of custom classes and functions.
    """
    open_ended = [
        name
        for name, info in fields_of(config_class)
        if get_origin(info.annotation) is dict
        or is_typeddict(info.annotation)
        or choice_at(config_class, name.split(".")) is not None
    ]
    others: list[str] = []
    options: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        option, equals, value = word.removeprefix("--").partition("=")
        is_open = option not in names and any(option.startswith(f"{name}.") for name in open_ended)
        if not (word.startswith("--") and is_open):
            others.append(word)
            continue
        if not equals:
            value = next(words, "")
        if not value or (not equals and value.startswith("--")):
            raise ConfigError(f"{program}: --{option} needs a value")
        options[option] = value
    return others, options
