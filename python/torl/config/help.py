"""What `--help` says: every field with its docstring, and the options of everything that can be chosen."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from torl.config.fields import choice_at, choice_of_field, fields_of
from torl.options import ChosenFrom


def add_arguments(parser: argparse.ArgumentParser, config_class: type[BaseModel]) -> None:
    """Add an option for every field of a configuration tree, in groups by section."""
    groups: dict[str, Any] = {}
    for name, info in fields_of(config_class):
        section = name.split(".")[0]
        if section not in groups:
            documentation = (getattr(config_class.model_fields[section].annotation, "__doc__", None) or "").strip()
            own = isinstance(config_class.model_fields[section].annotation, type)
            groups[section] = parser.add_argument_group(section, documentation if own else None)
        flag: dict[str, Any] = {"nargs": "?", "const": "true"} if info.annotation is bool else {}
        choice = choice_of_field(info)
        metavar = type_name(info.annotation) if choice is None else _metavar(choice)
        groups[section].add_argument(f"--{name}", metavar=metavar, help=_help(info, choice), **flag)
        table = choice_at(config_class, [*name.split("."), "*"])
        if choice is not None:
            _add_options(groups[section], name, choice)
        elif table is not None and table.default is None:
            for key in table.registry:
                _add_options(groups[section], f"{name}.{key}", table, only=key)


def _metavar(choice: ChosenFrom) -> str:
    return "NAME" if choice.shorthand is None else choice.shorthand[1].upper()


def _add_options(group: Any, name: str, choice: ChosenFrom, only: str | None = None) -> None:
    """The options of a choice; one that several have is said once, with the names of all that have it."""
    if only is None:
        group.add_argument(f"--{name}.name", metavar="NAME", help=argparse.SUPPRESS)
    infos: dict[str, dict[str, Any]] = {}
    for target, options in choice.all_options().items():
        for option, info in options.items():
            if only in (None, target):
                infos.setdefault(option, {})[target] = info
    for option, owners in infos.items():
        first = next(iter(owners.values()))
        flag: dict[str, Any] = {"nargs": "?", "const": "true"} if first.annotation is bool else {}
        text = " ".join(_of_owners(owners, named=len(choice.registry) > 1)).replace("%", "%%")
        group.add_argument(f"--{name}.{option}", metavar=type_name(first.annotation), help=text, **flag)


def _of_owners(owners: Mapping[str, Any], named: bool) -> Iterator[str]:
    """What an option means, once for all owners that mean the same; then its default, or each owner's own."""
    meanings: dict[str, list[str]] = {}
    for owner, info in owners.items():
        meanings.setdefault(info.description or "", []).append(owner)
    for meaning, of in meanings.items():
        yield f"Of {', '.join(of)}: {meaning}" if named else meaning
    defaults = {owner: _default(info) for owner, info in owners.items()}
    if len(set(defaults.values())) > 1:
        yield _in_brackets(", ".join(f"{default} of {owner}" for owner, default in defaults.items()))
    else:
        yield _in_brackets(next(iter(defaults.values())))


def type_name(annotation: Any) -> str:
    """A metavar: the choices of a Literal, the members of a union without None, the name of a plain type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "{" + ",".join(str(choice) for choice in arguments) + "}"
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is dict:
        return "TABLE"
    if origin is tuple:
        return "[" + ",".join(type_name(argument) for argument in arguments) + "]"
    if arguments:
        return "|".join(type_name(argument) for argument in arguments if argument is not type(None))
    return str(getattr(annotation, "__name__", annotation)).upper()


def _help(info: Any, choice: ChosenFrom | None) -> str:
    return " ".join(_sentences(info, choice)).replace("%", "%%")


def _sentences(info: Any, choice: ChosenFrom | None) -> Iterator[str]:
    if info.description:
        yield info.description
    if choice is not None and choice.shorthand is None:
        yield f"One of {', '.join(choice.registry)}, or package.module:Name of your own."
    yield _in_brackets(_default(info))


def _default(info: Any) -> str | None:
    """None where a value is required."""
    if info.is_required():
        return None
    default = info.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return str(default).lower()
    return "unset" if default in (None, "", {}) else str(default)


def _in_brackets(default: str | None) -> str:
    return "(required)" if default is None else f"(default: {default})"
