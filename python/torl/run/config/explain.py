"""Messages for invalid configurations: the source, the key, the problem and the nearest valid key."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from typing_extensions import is_typeddict

from torl.base.options import suggestion
from torl.base.removed import successor
from torl.run.config.fields import choice_at, custom_choice_at, fields_of, option_names_at

_UNION_MEMBER = re.compile(r"constrained-|\w+\[")
"""A type that pydantic puts into the path of an error, such as "tuple[int, ...]"."""
_SHOULD = "Input should "
_MAX_PLACES = 3  # that a line names if they have the same problem


class Layer(NamedTuple):
    """A configuration tree and the file or call that it comes from."""

    source: str
    tree: Mapping[str, Any]


class Sources(NamedTuple):
    """The sources of a configuration."""

    layers: Sequence[Layer]
    """The trees that it was merged from, of which later ones override earlier ones."""
    overrides: Mapping[str, Any]
    """Values by dotted name that were applied to it."""
    caller: str | None = None
    """Function whose arguments the overrides are; None for options of a command line."""
    keywords: Sequence[str] = ()
    """Further keywords of the caller."""


class _Explained(NamedTuple):
    """A problem at a place of a configuration."""

    source: str
    """File, files or call; empty for an option of the command line."""
    place: str
    problem: str


def explain(config_class: type[BaseModel], errors: Sequence[Any], tree: Mapping[str, Any], sources: Sources) -> str:
    """Explain errors of pydantic, with keys spelled as in TOML, on the command line, or in the caller's Python.

    Args:
        config_class: Root class of the configuration tree.
        errors: Result of `ValidationError.errors()`.
        tree: The merged tree.
        sources: Sources of the tree.

    Returns:
        A line for each problem, with the places that have it.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for error in errors:
        found = _explain(config_class, error, tree, sources)
        places.setdefault((found.source, found.problem), []).append(found.place)
    lines = []
    for (source, problem), names in places.items():
        listed = ", ".join(names[:_MAX_PLACES]) + (f" and {len(names) - _MAX_PLACES} more" * (len(names) > _MAX_PLACES))
        lines.append(": ".join(part for part in (source, listed) if part) + problem)
    return "\n".join(lines)


def _explain(config_class: type[BaseModel], error: Any, tree: Mapping[str, Any], sources: Sources) -> _Explained:
    path = [str(part) for part in error["loc"] if not _UNION_MEMBER.match(str(part))]
    name = ".".join(path)
    option = _override_of(path, error["msg"], sources)
    dashes = "--" if option and sources.caller is None else ""
    source = "" if dashes else (option and sources.caller) or _source_of(path, sources.layers)
    place = dashes + _spelled(path, option) if option and dashes else name
    if error["type"] == "extra_forbidden":
        return _Explained(source, place, _unknown(config_class, path, tree, sources.keywords, dashes))
    if error["type"] == "missing":
        chosen = custom_choice_at(config_class, tree, path[:-1])
        reason = f": the parameter {path[-1]!r} of {chosen} has no default" if chosen else ""
        return _Explained(source, place, f" is missing{reason}")
    return _Explained(source, place, _problem(error))


def _unknown(
    config_class: type[BaseModel], path: Sequence[str], tree: Mapping[str, Any], keywords: Sequence[str], dashes: str
) -> str:
    name = ".".join(path)
    choice = choice_at(config_class, path[:-1])
    if choice is None:
        return f" is unknown{did_you_mean(name, [*known_keys(config_class), *keywords], dashes)}"
    others = [other for other, options in choice.all_options().items() if path[-1] in options]
    if others:
        return f" is an option of {', '.join(others)}, and not of the {choice.kind} chosen here"
    known = [".".join([*path[:-1], each]) for each in option_names_at(config_class, tree, path[:-1])]
    now = successor(name)
    return f" is unknown; {now}" if now else f" is unknown{suggestion(name, known, dashes)}"


def _problem(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("model_type", "dict_type"):
        return f" must be a table, got {error['input']!r}"
    if message.startswith(_SHOULD):
        return f" must {message.removeprefix(_SHOULD).partition(', unable')[0]}, got {error['input']!r}"
    return f": {message}" + ("" if isinstance(error["input"], dict) else f" (given: {error['input']!r})")


def did_you_mean(name: str, known: Sequence[str], dashes: str = "") -> str:
    """Return the end of a message about an unknown dotted name: its successor, or the nearest key, if any."""
    if now := successor(name):
        return f"; {now}"
    nearest = _nearest(name, known)
    if nearest is None:
        return ""
    if nearest not in known or ("." in name and nearest == name.partition(".")[0]):
        return f"; `torl train --help {nearest}` lists the settings of this section"
    head, _, rest = name.partition(".")
    if "." not in nearest and rest and nearest != head:
        nearest = f"{nearest}.{rest}"  # an option of a custom class or function, in a misspelled section
    return f"; did you mean {dashes}{nearest}?"


def known_keys(config_class: type[BaseModel]) -> list[str]:
    """Return all sections, settings and options of registered choices, by dotted name."""
    return [*config_class.model_fields, *_dotted(config_class)]


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the key that continues the name, that was moved to another section, or the nearest, section by section."""
    head, _, rest = name.partition(".")
    heads = list(dict.fromkeys(key.partition(".")[0] for key in known))
    section = head if head in heads else _closest(head, heads, 0.5 if not rest else 0.6)
    if not rest:
        settings = (key for key in known if key.count(".") == 1 and key.partition(".")[2] == name)
        return section if head in heads else next(settings, section)
    if longer := next((key for key in known if key.startswith(f"{name}_")), None):
        return longer
    moved = {key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]}
    if len(moved) == 1 and name.count(".") == 1:
        return moved.pop()
    inside = [key.partition(".")[2] for key in known if section is not None and key.startswith(f"{section}.")]
    if inside and (close := rest if rest in inside else _closest(rest, inside, 0.6)):
        return f"{section}.{close}"
    return section


def _closest(word: str, words: Sequence[str], cutoff: float) -> str | None:
    return next(iter(difflib.get_close_matches(word, words, n=1, cutoff=cutoff)), None)


def _override_of(path: Sequence[str], message: str, sources: Sources) -> str | None:
    """Return the override that an error is about: of the key, of a table or list around it, or named in the message."""
    layers, overrides = sources.layers, sources.overrides
    for depth in range(len(path), 0, -1):
        prefix = ".".join(path[:depth])
        if prefix in overrides:
            return prefix
        is_chosen = f"{prefix}.name" in overrides
        if is_chosen and (depth == len(path) or not any(_sets(layer.tree, path) for layer in layers)):
            return f"{prefix}.name"
    section = "".join(f"{part}." for part in path)
    keys = {name: name.removeprefix(section) for name in overrides if name.startswith(section)}
    is_added = bool(path) and not any(_sets(layer.tree, path) for layer in layers)
    return next((name for name, key in keys.items() if is_added or re.search(rf"\b{re.escape(key)}\b", message)), None)


def _spelled(path: Sequence[str], option: str) -> str:
    """Return an option, or the part of its value that an error is about, such as `learner.betas[1]`."""
    depth = option.count(".") + 1
    if len(path) < depth:
        return option
    return ".".join(path[:depth]) + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path[depth:])


def _source_of(path: Sequence[str], layers: Sequence[Layer]) -> str:
    """Return the source of the last layer that sets the key, or else the innermost table around it."""
    prefixes = [path[:depth] for depth in range(len(path), 0, -1)]
    found = (layer.source for prefix in prefixes for layer in reversed(layers) if _sets(layer.tree, prefix))
    return next(found, None) or ", ".join(layer.source for layer in layers) or "the command line"


def _sets(tree: Any, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(tree, Mapping) or part not in tree:
            return False
        tree = tree[part]
    return bool(path)


def _dotted(config_class: type[BaseModel]) -> Iterator[str]:
    for name, info in fields_of(config_class):
        yield name
        if is_typeddict(info.annotation):
            yield from (f"{name}.{key}" for key in info.annotation.__annotations__)
        choice = choice_at(config_class, name.split("."))
        if choice is not None:
            yield f"{name}.name"
            yield from {f"{name}.{option}" for options in choice.all_options().values() for option in options}
