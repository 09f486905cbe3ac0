"""The fields of a configuration tree, by their dotted names."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from torl.base.options import ChosenFrom


class _Replaced:
    """The mark of a table that a file gives as a whole: it replaces an inherited one instead of adding to it."""


REPLACED = _Replaced()


def fields_of(config_class: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, pydantic FieldInfo) for every leaf of a configuration tree; a choice is a leaf.

    Excluded fields are not part of the tree: their values are fixed.
    """
    for name, info in config_class.model_fields.items():
        section = info.annotation
        if info.exclude:
            continue
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from fields_of(section, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def is_text(annotation: Any) -> bool:
    """Whether a field is a text or a path, possibly optional."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return str in members or Path in members


def choice_of_field(info: Any) -> ChosenFrom | None:
    """Return the choice of a field; None for other fields and for tables of choices."""
    return next((each for each in [*info.metadata, *_metadata(info.annotation)] if isinstance(each, ChosenFrom)), None)


def choice_at(config_class: type[BaseModel], path: Sequence[str]) -> ChosenFrom | None:
    """Return the choice at a path, including keys of a table of choices; None for other paths."""
    info, rest = _field_above(config_class, path)
    return None if info is None else _choice_in(info, rest)


def is_replaced(config_class: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether the field at a path is marked with `REPLACED`."""
    info, rest = _field_above(config_class, path)
    return info is not None and not rest and REPLACED in info.metadata


def _field_above(config_class: type[BaseModel], path: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Return the field that a path is at or below, and the rest of the path; None for a section or an unknown name."""
    if not path:
        return None, path
    info = config_class.model_fields.get(path[0])
    if info is None or info.exclude:
        return None, path
    if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
        return _field_above(info.annotation, path[1:])
    return info, path[1:]


def _choice_in(info: Any, path: Sequence[str]) -> ChosenFrom | None:
    """Return the choice at a path below a field: the field, a key of its table, or an option of what it can choose."""
    choice = choice_of_field(info)
    if not path:
        return choice
    if choice is not None:
        options = (known.get(path[0]) for known in choice.all_options().values())
        found = (_choice_in(option, path[1:]) for option in options if option is not None)
        return next((each for each in found if each is not None), None)
    if len(path) == 1 and get_origin(info.annotation) is dict:
        return next((each for each in _metadata(get_args(info.annotation)[1]) if isinstance(each, ChosenFrom)), None)
    return None


def option_names_at(config_class: type[BaseModel], tree: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """Return the option names of the class or function that a tree has chosen at a path."""
    choice = choice_at(config_class, path)
    assert choice is not None
    return list(choice.options_of(choice.find(_chosen_name(choice, tree, path))))


def custom_choice_at(config_class: type[BaseModel], tree: Mapping[str, Any], path: Sequence[str]) -> str | None:
    """Return the custom class or function that a tree has chosen at a path; None if there is none."""
    choice = choice_at(config_class, path)
    name = "" if choice is None else _chosen_name(choice, tree, path)
    return name if ":" in name else None


def _chosen_name(choice: ChosenFrom, tree: Mapping[str, Any], path: Sequence[str]) -> str:
    section: Any = tree
    for part in path:
        section = section.get(part, {})
    return str(choice.expand(section).get("name", choice.default or path[-1]))


def default_table_at(config_class: type[BaseModel], tree: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return the default of the table at a path; empty for other paths, and for tables without a default.

    Args:
        config_class: Root class of the configuration tree.
        tree: Tree with the choices that decide which options a path has.
        path: Path of the table.
    """
    fields: Mapping[str, Any] = config_class.model_fields
    info: Any = None
    section = tree
    for part in path:
        if (info := fields.get(part)) is None:
            return {}
        section = section.get(part, {})
        choice = choice_of_field(info)
        if choice is not None:
            fields = _chosen_options(choice, section)
        else:
            fields = getattr(info.annotation, "model_fields", {})
    is_table = info is not None and get_origin(info.annotation) is dict
    return dict(info.default) if is_table and isinstance(info.default, dict) else {}


def _chosen_options(choice: ChosenFrom, section: Any) -> Mapping[str, Any]:
    try:
        return choice.options_of(choice.find(choice.expand(section).get("name", choice.default)))
    except (ValueError, TypeError, AttributeError):  # validation reports the name
        return {}


def _metadata(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from get_args(annotation)[1:]
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _metadata(member)
