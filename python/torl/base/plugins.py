"""The parts that installed packages add to torl by entry points: commands, monitors, and parts of the laboratory.

A package names an object in its metadata, as in `[project.entry-points."torl.commands"]`, `hello = "my_package:HELLO"`.
It is imported when it is used. Nothing in the current directory is found, which may be that of another user's run.
"""

import importlib
import inspect
import traceback
from collections.abc import Callable, Container, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from torl.base.errors import ConfigError
from torl.base.trust import importing_nothing_from_here

Kind = TypeVar("Kind")

COMMANDS: Final = "torl.commands"
"""Group of the objects of the class `torl.Command`."""
MONITORS: Final = "torl.monitors"
"""Group of the subclasses of `torl.Monitor`."""
_IMPORTERS: Final = (__file__, str(Path(importlib.__file__).parent), "<frozen ")
"""Beginnings of the files whose lines import a package, and say nothing of its mistake."""


def plugins(group: str, own: Container[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of a group by their names, sorted.

    Args:
        group: Group.
        own: Names that torl itself uses.

    Raises:
        ConfigError: A package uses a name of torl or of another package.
    """
    found = _entry_points(group)
    for one, other in pairwise(found):
        if one.name == other.name and one != other:
            raise ConfigError(
                f"{group}: {one.name!r} is the name of {one.value} and of {other.value}; uninstall one of the packages "
                f"{_package(one)} and {_package(other)}"
            )
    for each in found:
        if each.name in own:
            raise ConfigError(f"{subject(each)} has a name of torl itself; the package must choose another")
    return {each.name: each for each in found}


def plugin_names(group: str) -> list[str]:
    """Return the names of a group's entry points, sorted, also names that `plugins` refuses."""
    return [each.name for each in _entry_points(group)]


def _entry_points(group: str) -> list[EntryPoint]:
    with importing_nothing_from_here():
        return sorted(entry_points(group=group), key=lambda each: each.name)


def load_plugin(point: EntryPoint, kind: type[Kind]) -> Kind:
    """Import the object of an entry point, which must be of a class.

    Raises:
        ConfigError: The object cannot be imported, or is something else.
    """
    return _require(point, _load(point), kind)


def load_each(point: EntryPoint, kind: type[Kind]) -> Sequence[Kind]:
    """Import the object of an entry point, or the objects of its list or tuple, which must be of a class.

    Raises:
        ConfigError: The object cannot be imported, or is something else.
    """
    found = _load(point)
    return [_require(point, each, kind) for each in (found if isinstance(found, list | tuple) else [found])]


def load_class(point: EntryPoint, base: type[Kind]) -> type[Kind]:
    """Import the class of an entry point, which must be a subclass of a class.

    Raises:
        ConfigError: The class cannot be imported, or is something else.
    """
    found = _load(point)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{subject(point)} must be a subclass of {base.__name__}, got {found!r}")
    return found


def load_function(point: EntryPoint, name: object) -> Callable[[Sequence[str] | None], object]:
    """Import the function of a command, "module:function".

    Raises:
        ConfigError: The function cannot be imported, or does not take the words after the command.
    """
    if not isinstance(name, str):
        raise ConfigError(f'{subject(point)}: its command must name its function as "module:function", got {name!r}')
    found = _load(point, name)
    where = f"{subject(point)}: {name} must be a function of the words after the command"
    if not callable(found):
        raise ConfigError(f"{where}, got {found!r}")
    try:
        inspect.signature(found).bind(())
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error
    return found


def subject(point: EntryPoint) -> str:
    """Return the group, the name, the object and the package of an entry point, for messages."""
    return f"{point.group}: {point.name} = {point.value} of the package {_package(point)}"


def _require(point: EntryPoint, found: object, kind: type[Kind]) -> Kind:
    if isinstance(found, kind):
        return found
    fix = ""
    if isinstance(found, type) and issubclass(found, kind):
        fix = f"; name an object of it, such as {found.__name__}()"
    raise ConfigError(f"{subject(point)} must be of the class {kind.__name__}, got {found!r}{fix}")


def _load(point: EntryPoint, name: str | None = None) -> object:
    """Import the object of an entry point, or another object of its package."""
    where = subject(point) if name is None else f"{subject(point)}: {name}"
    try:
        loaded: object = (point if name is None else EntryPoint(point.name, name, point.group)).load()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [f" ({each.filename}:{each.lineno})" for each in frames if not each.filename.startswith(_IMPORTERS)]
        reason = f"{type(error).__name__}: {error}{places[-1] if places else ''}"
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        fix = f"install {missing}, or uninstall" if missing else "correct or uninstall"
        raise ConfigError(f"{where} cannot be imported: {reason}; {fix} the package {_package(point)}") from error
    return loaded


def _package(point: EntryPoint) -> str:
    return "unknown" if point.dist is None else point.dist.name
