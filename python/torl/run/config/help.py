"""`--help`: the settings that are changed most often; `--help SECTION`, `--help all`: the others."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import is_typeddict

from torl.base.errors import ConfigError
from torl.base.options import ChosenFrom, suggestion
from torl.run.config.fields import choice_at, choice_of_field, fields_of
from torl.run.config.schedule import BY_STEP
from torl.run.config.training import ModelRunConfig

_TYPE_NAMES = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH", bool: "true|false", Any: "VALUE"}


class Setting(NamedTuple):
    """A setting of a configuration tree, or an option of a choice in it."""

    name: str
    """Dotted name."""
    type: str
    """The type, for people."""
    meaning: str
    default: str
    """The default, such as "3", "unset" or "required"; of an option, with the choices that it differs for."""
    is_flag: bool


def add_options(parser: argparse.ArgumentParser, config_class: type[BaseModel]) -> set[str]:
    """Add an option for every setting, to parse a command line with, and return their dotted names."""
    is_flag: dict[str, bool] = {}
    for name, info in fields_of(config_class):
        is_flag[name] = info.annotation is bool
        choice, table = choice_of_field(info), choice_at(config_class, [*name.split("."), "*"])
        if choice is not None:
            is_flag[f"{name}.name"] = False
            for option, owners in _options(choice).items():
                is_flag[f"{name}.{option}"] = next(iter(owners.values())).annotation is bool
        elif table is not None and table.default is None:
            for key in table.registry:
                for option, owners in _options(table, key).items():
                    is_flag[f"{name}.{key}.{option}"] = next(iter(owners.values())).annotation is bool
    for name, flag in is_flag.items():
        _add(parser, name, flag)
    return set(is_flag)


def print_help(parser: argparse.ArgumentParser, config_class: type[ModelRunConfig], program: str, topic: str) -> None:
    """Print the help of a topic: "" for the common settings, "all", a section, or the beginning of a dotted name.

    Raises:
        ConfigError: No setting is called that.
    """
    sections = list(config_class.model_fields)
    parser.add_argument("--help", nargs="?", metavar="SECTION", help="show a section's settings, or `all`")
    groups: dict[str, Any] = {}
    shown = 0
    for setting in settings_of(config_class, topic):
        section = setting.name.split(".")[0]
        if section not in groups:
            groups[section] = parser.add_argument_group(section, section_title(config_class, section))
        default = setting.default if setting.default == "required" else f"default: {setting.default}"
        text = f"{setting.meaning} ({default})".replace("%", "%%")
        _add(groups[section], setting.name, setting.is_flag, metavar=setting.type, help=text)
        shown += 1
    if not shown:
        raise ConfigError(f"{program} --help {topic}: no such section{suggestion(topic, sections)}")
    if topic != "all":
        parser.epilog = (
            f"All settings: {program} --help all. Those of a section: {program} --help SECTION, of "
            f"{', '.join(sections)}."
        )
    parser.print_help()


def all_settings(config_classes: Sequence[type[ModelRunConfig]]) -> dict[str, Setting]:
    """Return the settings of several trees by name, without the options of a choice that an earlier setting has."""
    first_names: dict[int, str] = {}
    listed: dict[str, Setting] = {}
    for config_class in config_classes:
        for setting in settings_of(config_class, first_names=first_names):
            listed.setdefault(setting.name, setting)
    return listed


def settings_of(
    config_class: type[ModelRunConfig], topic: str = "all", first_names: dict[int, str] | None = None
) -> Iterator[Setting]:
    """Yield the settings of a tree, each followed by the options of its registered choices.

    Args:
        config_class: Root class of the configuration tree.
        topic: "all", "" for the common settings, or a dotted name, which selects everything below it. The options of a
            choice that an earlier setting has, too, are listed for that one only, unless the name selects them.
        first_names: Names of earlier settings by the id of the registry that they choose from. Updated.
    """
    first_names = {} if first_names is None else first_names

    def is_selected(name: str) -> bool:
        if not topic:
            return name in config_class.common_settings
        return topic in ("all", name) or name.startswith(f"{topic}.")

    def has_selected_options(name: str) -> bool:
        if not topic:
            return any(each.startswith(f"{name}.") for each in config_class.common_settings)
        return is_selected(name) or topic.startswith(f"{name}.")

    for name, info in fields_of(config_class):
        choice, table = choice_of_field(info), choice_at(config_class, [*name.split("."), "*"])
        listed = choice if table is None or table.default is not None else table
        first = name if listed is None else first_names.setdefault(id(listed.registry), name)
        if is_selected(name):
            setting = _setting(name, info, choice)
            yield setting if first == name else _with_options_of(setting, first)
        is_repeated = first != name and not topic.startswith(name)
        if is_repeated or not has_selected_options(name):
            continue  # without an import of what can be chosen
        if choice is not None:
            yield from (each for each in _choice_settings(name, choice) if is_selected(each.name))
        elif table is not None and table.default is None:
            yield from (each for each in _table_settings(name, table, topic) if is_selected(each.name))


def section_title(config_class: type[BaseModel], section: str) -> str | None:
    """Return the first sentence of a section's docstring; None for a choice."""
    annotation = config_class.model_fields[section].annotation
    if not isinstance(annotation, type):
        return None
    return (annotation.__doc__ or "").strip().split("\n\n")[0]


def type_name(annotation: Any) -> str:
    """Return the type for people: INT, NUMBER, TEXT, PATH, true|false, {a,b}, [INT, ...], TABLE; unions as A|B."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        values = [str(value) for value in arguments]
        return values[0] if len(values) == 1 else "{" + ",".join(values) + "}"
    if is_typeddict(annotation):
        return "TABLE"
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (dict, Mapping):
        return "TABLE"
    if origin in (tuple, list, Sequence):
        inner = [type_name(each) for each in arguments if each is not ...]
        return f"[{', '.join(inner)}{', ...' if len(inner) < len(arguments) or origin is not tuple else ''}]"
    if origin in (Union, UnionType):
        return "|".join(dict.fromkeys(type_name(each) for each in arguments if each is not NoneType))
    name = getattr(annotation, "__name__", str(annotation))
    return "TABLE" if annotation in (dict, Mapping) else _TYPE_NAMES.get(annotation, name.upper())


def _add(group: Any, name: str, is_flag: bool, **texts: Any) -> None:
    flag: dict[str, Any] = {"nargs": "?", "const": "true"} if is_flag else {}
    group.add_argument(f"--{name}", **flag, **texts)


def _with_options_of(setting: Setting, first: str) -> Setting:
    return setting._replace(meaning=f"{setting.meaning.partition(' One of ')[0]} It has the options of `{first}`.")


def _setting(name: str, info: Any, choice: ChosenFrom | None) -> Setting:
    meaning = info.description or ""
    if choice is None:
        type = type_name(info.annotation) + ("|[[STEP, VALUE], ...]" if BY_STEP in info.metadata else "")
        return Setting(name, type, meaning, _default(info), info.annotation is bool)
    if choice.shorthand is None:
        names = f" One of {', '.join(choice.registry)}, or package.module:Name for a custom one."
        meaning = f"{meaning}{names if choice.registry else ''}".strip()
    type = "NAME" if choice.shorthand is None else choice.shorthand[1].upper()
    return Setting(name, type, meaning, _default(info), False)


def _choice_settings(name: str, choice: ChosenFrom, only: str | None = None) -> Iterator[Setting]:
    """Yield the options of a choice; one that several choices have once, with the names of these."""
    is_shared = len(choice.registry) > 1 and only is None
    for option, owners in _options(choice, only).items():
        first = next(iter(owners.values()))
        meanings: dict[str, list[str]] = {}
        defaults: dict[str, list[str]] = {}
        for owner, info in owners.items():
            meanings.setdefault(info.description or "", []).append(owner)
            defaults.setdefault(_default(info), []).append(owner)
        meaning = " ".join(f"[{', '.join(of)}] {text}" if is_shared else text for text, of in meanings.items())
        default = next(iter(defaults))
        if len(defaults) > 1:
            default = "; ".join(f"{value} for {', '.join(of)}" for value, of in defaults.items())
        yield Setting(f"{name}.{option}", type_name(first.annotation), meaning, default, first.annotation is bool)


def _table_settings(name: str, table: ChosenFrom, topic: str) -> Iterator[Setting]:
    """Yield the options of each choice that a table may hold, and then once those that several of them have.

    The help of one choice lists all its options.
    """
    owners = _options(table)
    only = next((key for key in table.registry if topic == f"{name}.{key}"), None)
    for key in table.registry if only is None else [only]:
        own = _choice_settings(f"{name}.{key}", table, key)
        yield from (each for each in own if only or len(owners[each.name.rpartition(".")[2]]) == 1)
    if only is None:
        every = _choice_settings(f"{name}.*", table)
        yield from (each for each in every if len(owners[each.name.rpartition(".")[2]]) > 1)


def _options(choice: ChosenFrom, only: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the options of a choice, each with the registered names that have it and its field there."""
    infos: dict[str, dict[str, Any]] = {}
    for target, options in choice.all_options().items():
        for option, info in options.items():
            if only in (None, target):
                infos.setdefault(option, {})[target] = info
    return infos


def _default(info: Any) -> str:
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(str, default))}]" if default else "unset"
    return "unset" if default in (None, "", {}) else str(default)
