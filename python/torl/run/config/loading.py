"""Configurations from TOML files and overrides: find, extend, merge and validate them.

A file may extend others, `extends = "demo"` or `extends = ["demo", "more.toml"]`: its own settings override theirs, and
later ones override earlier ones. `false` for a choice (`rollout.tools.python = false`) removes an inherited one. The
sets of `data.evaluation` replace inherited ones. In a file, a table replaces its default; an override of one of its
keys keeps the others.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from torl.base.errors import ConfigError
from torl.base.inputs import parse_toml as parse_toml_text
from torl.base.options import Section, dotted_leaves, parse_toml, read_text, suggestion
from torl.base.removed import differing, is_recorded, translated
from torl.base.trust import note_settings
from torl.run.config.explain import Layer, Sources, explain
from torl.run.config.fields import choice_at, default_table_at, fields_of, is_replaced, is_text

Config = TypeVar("Config", bound=Section)

_PACKAGE = Path(__file__).parents[2]
_EXTENDS = "extends"
_OVERLAY = ".overlay.toml"


def presets() -> dict[str, Path]:
    """Return the files of the presets that torl ships, by name: the demo, and the runs of each recipe.

    A recipe's `config.toml` has the name of its folder, any other TOML file its own.
    """
    files = (*_PACKAGE.glob("presets/*.toml"), *_PACKAGE.glob("recipes/*/*.toml"))
    named = {file.parent.name if file.name == "config.toml" else file.stem: file for file in files}
    return {name: file for name, file in sorted(named.items()) if not file.name.endswith(_OVERLAY)}


def overlays() -> dict[str, Path]:
    """Return the files of the recipes that change a few settings of another configuration, by name."""
    files = _PACKAGE.glob(f"recipes/*/*{_OVERLAY}")
    return dict(sorted((file.name.removesuffix(_OVERLAY), file) for file in files))


def find_config(name: str | Path) -> Path:
    """Return the file that CONFIG names: a path, the directory of a run, or a preset ("torl_7b").

    Raises:
        ConfigError: No such file or preset exists; names the nearest preset.
    """
    path = Path(name)
    if (path / "config.toml").is_file():
        return path / "config.toml"
    shipped = presets() | overlays()
    if str(name) in shipped and not path.is_file():
        return shipped[str(name)]
    if path.is_dir():
        return path / "config.toml"
    if path.exists() or path.suffix == ".toml" or len(path.parts) != 1:
        return path
    known = suggestion(path.name, list(shipped)) or f"; the presets are: {', '.join(shipped)}"
    raise ConfigError(f"{name}: no such file, and no preset of that name{known}")


def load_config(
    config_class: type[Config],
    configs: Path | Sequence[Path] | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    caller: str | None = None,
) -> Config:
    """Read TOML files, merge them, apply overrides, and validate the result.

    Args:
        config_class: Root class of the configuration tree.
        configs: Files, of which later ones override earlier ones; None to use the overrides only.
        overrides: Values by dotted name, or their text as on a command line.
        caller: Function whose arguments the overrides are, for messages; None for options of a command line.

    Raises:
        ConfigError: A file cannot be read, a key is unknown, or a value is invalid.
    """
    files = [] if configs is None else [configs] if isinstance(configs, Path) else configs
    layers = [layer for file in files for layer in read_layers(file)]
    texts = {name for name, info in fields_of(config_class) if is_text(info.annotation)}
    values = {
        name: _parse_value(value, name in texts) if isinstance(value, str) else value
        for name, value in (overrides or {}).items()
    }
    return validate_config(config_class, layers, values, caller=caller)


def read_layers(path: Path, extended_by: Sequence[Path] = ()) -> Iterator[Layer]:
    """Read a file, and before it the files that it extends; translate the recorded configuration of an earlier run.

    Raises:
        ConfigError: A file cannot be read, or extends itself.
    """
    if os.path.realpath(path) in map(os.path.realpath, extended_by):
        raise ConfigError(f"{path}: extends itself ({' -> '.join(map(str, [*extended_by, path]))})")
    try:
        text = read_text(path)
        tree = parse_toml(path, text)
    except ConfigError as error:
        raise (ConfigError(f"{extended_by[-1]}: extends {error}") if extended_by else error) from error
    source = next((f"preset {name}" for name, file in (presets() | overlays()).items() if file == path), str(path))
    yield from extended_layers(tree, source, path.parent, [*extended_by, path])
    if not is_recorded(text):
        yield Layer(source, tree)
        return
    if reason := differing(tree):
        raise ConfigError(f"{path}: {reason}. Use the version of torl that made the run")
    yield Layer(source, translated(tree))


def extended_layers(
    tree: dict[str, Any], source: str, directory: Path = Path(), extended_by: Sequence[Path] = ()
) -> Iterator[Layer]:
    """Remove `extends` from a tree, and read the configurations that it names.

    Raises:
        ConfigError: The value is neither a name nor a list of names, or a file cannot be read.
    """
    value = tree.pop(_EXTENDS, [])
    names = [value] if isinstance(value, str | Path) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | Path) for name in names):
        raise ConfigError(f"{source}: extends = {value!r} must be a preset, a file, or a list of them")
    for name in names:
        nearby = directory / name
        found = nearby if nearby.is_file() or (nearby / "config.toml").is_file() else name
        try:
            file = find_config(found)
        except ConfigError as error:
            raise ConfigError(f"{source}: extends {error}") from error
        yield from read_layers(file, extended_by)


def validate_config(
    config_class: type[Config],
    layers: Sequence[Layer],
    overrides: Mapping[str, Any] | None = None,
    *,
    caller: str | None = None,
    keywords: Sequence[str] = (),
) -> Config:
    """Merge layers, apply overrides by dotted name, and validate the result.

    Args:
        config_class: Root class of the configuration tree.
        layers: Trees, of which later ones override earlier ones.
        overrides: Values by dotted name.
        caller: Function whose arguments the overrides are, for messages; None for options of a command line.
        keywords: Further keywords of the caller, suggested for an unknown one.

    Raises:
        ConfigError: A key is unknown or a value is invalid; names the source, the key and the nearest key.
    """
    overrides = overrides or {}
    tree: dict[str, Any] = {}
    for layer in layers:
        is_file = layer.source != caller
        tree = _merge(config_class, tree, config_class.settings_of_file(layer.tree) if is_file else layer.tree)
    source = caller or ", ".join(layer.source for layer in layers) or "the command line"
    for name in sorted(overrides, key=lambda name: (not name.endswith(".name"), name.count("."))):
        _override(config_class, tree, name, overrides[name], source)
    note_settings(dotted_leaves(tree))
    try:
        return config_class.model_validate(tree)
    except ValidationError as error:
        message = explain(config_class, error.errors(), tree, Sources(layers, overrides, caller, keywords))
        raise ConfigError(message) from error


def ignored_settings(
    config_class: type[Config], layers: Sequence[Layer], overrides: Mapping[str, Any] | None = None
) -> list[str]:
    """Return a line for each file with settings that `config_class.settings_of_file` drops and that nothing else sets.

    Args:
        config_class: Root class of the configuration tree.
        layers: Trees of files, of which later ones override earlier ones.
        overrides: Values by dotted name.
    """
    known = {name for name, _ in fields_of(config_class)}
    ignored: dict[str, str] = {}
    counted = set(overrides or {})
    for layer in layers:
        names = {name for name, _ in dotted_leaves(config_class.settings_of_file(layer.tree))}
        counted |= names
        ignored |= {name: layer.source for name, _ in dotted_leaves(layer.tree) if name in known - names}
    by_source: dict[str, list[str]] = {}
    for name, source in ignored.items():
        if name not in counted:
            by_source.setdefault(source, []).append(name)
    return [
        f"{source}: ignored settings of training: {', '.join(names)} (they count in a file with a section finetune, or "
        "on the command line)"
        for source, names in by_source.items()
    ]


def _merge(
    config_class: type[BaseModel], base: Mapping[str, Any], top: Mapping[str, Any], path: Sequence[str] = ()
) -> dict[str, Any]:
    """Return `base` with the values of `top`; another name of a choice drops the options of the base."""
    merged = dict(base)
    for key, value in top.items():
        choice = choice_at(config_class, [*path, key])
        if choice is None:
            if isinstance(value, Mapping):
                old = {} if is_replaced(config_class, [*path, key]) else base.get(key)
                value = _merge(config_class, old if isinstance(old, Mapping) else {}, value, [*path, key])
            merged[key] = value
        elif value is False:
            merged.pop(key, None)
        else:
            old, new = choice.expand(base.get(key)), choice.expand(value)
            both = isinstance(new, Mapping) and isinstance(old, Mapping)
            same = both and new.get("name", old.get("name")) == old.get("name", choice.default or key)
            merged[key] = {**old, **new} if both and (same or "name" not in new) else new
    return merged


def _override(config_class: type[BaseModel], tree: dict[str, Any], name: str, value: Any, source: str) -> None:
    *parents, leaf = name.split(".")
    table = tree
    for depth, parent in enumerate(parents, start=1):
        choice = choice_at(config_class, parents[:depth])
        if choice is not None and parent in table:
            table[parent] = choice.expand(table[parent])
        if parent not in table:
            table[parent] = default_table_at(config_class, tree, parents[:depth])
        # A copy: the tables belong to the layers.
        table[parent] = dict(table[parent]) if isinstance(table.get(parent), Mapping) else table.get(parent, {})
        table = table[parent]
        if not isinstance(table, dict):
            raise ConfigError(f"{source}: {'.'.join(parents[:depth])} must be a table")
    if value is False and choice_at(config_class, [*parents, leaf]) is not None:
        table.pop(leaf, None)
        return
    choice = choice_at(config_class, parents)
    if leaf == "name" and choice is not None and table.get("name", choice.default or parents[-1]) != value:
        table.clear()  # the options of another choice
    table[leaf] = value


def _parse_value(text: str, is_text: bool) -> Any:
    """Parse a TOML value; a text that is not TOML, or a number for a text field, stays a text."""
    try:
        value = parse_toml_text(f"value = {text}")["value"]
    except ValueError:
        return text
    return text if is_text and not isinstance(value, str) else value
