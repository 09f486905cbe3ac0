"""Removed settings, with their successors: for messages, and to read the configurations of earlier runs.

A removed setting in a file of a user, on a command line or in a call is an error that names its successor. Only in the
configuration that a run has recorded is it translated, so that old records stay readable. The module imports no more of
torl than the table of removed settings: readers of runs use it without loading the settings.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torl.base.removed_settings import REMOVED, RENAMED_REWARDS

FIRST_STEP_LINE: Final = "# The configuration from step {} on.\n"
"""First line of a configuration that a run records, with the first step that it applies to."""
_IS_RECORDED: Final = re.compile(FIRST_STEP_LINE.format(r"\d+"))
_REWARDS: Final = tuple(
    f"{each}{name}" for each in ("", "evaluation.") for name in ("reward.name", "reward.parts.*.name")
)
"""The settings that name a reward."""


def is_recorded(text: str) -> bool:
    """Whether the text of a TOML file is a configuration that a run has recorded."""
    return _IS_RECORDED.match(text) is not None


def successor(name: str) -> str | None:
    """Return the successor of a removed setting, as the end of a message; None for other names."""
    return next((each.now for pattern, each in REMOVED.items() if _pattern(pattern).fullmatch(name)), None)


def translated(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an earlier run with the settings that replace removed ones."""
    found = copy.deepcopy(dict(tree))
    for pattern, removed in REMOVED.items():
        for section, key, path in list(_found(found, pattern.split("."))):
            if removed.of and section.get("name") not in removed.of:
                continue  # an option of another class that has the same name
            given = section.pop(key)
            if removed.joined:
                given = [given if name == key else section.pop(name, each) for name, each in removed.joined.items()]
            for name, value in removed.settings(given).items():
                _insert(found, _filled(name.split("."), path), value)
    for pattern in _REWARDS:
        for section, key, _ in _found(found, pattern.split(".")):
            section[key] = RENAMED_REWARDS.get(section[key], section[key])
    return found


def differing(tree: Mapping[str, Any]) -> str | None:
    """Return why the run of a recorded configuration cannot be computed again; None if it can.

    A removed setting had another value than torl computes with now.
    """
    for pattern, removed in REMOVED.items():
        for section, key, path in _found(tree, pattern.split(".")) if removed.constant is not None else ():
            if (not removed.of or section.get("name") in removed.of) and section[key] != removed.constant:
                return f"{'.'.join(path)} = {section[key]}: torl computes with {removed.constant} now; {removed.now}"
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", r"[^.]+"))


def _found(tree: Any, parts: list[str], above: tuple[str, ...] = ()) -> Iterator[tuple[Any, str, tuple[str, ...]]]:
    """Yield the table, the key and the path of each setting that a pattern names."""
    first, *rest = parts
    for key in [key for key in tree if first in (key, "*")] if isinstance(tree, dict) else []:
        if rest:
            yield from _found(tree[key], rest, (*above, key))
        else:
            yield tree, key, (*above, key)


def _filled(name: list[str], path: tuple[str, ...]) -> list[str]:
    """Return a name with each "*" replaced by the part of a path at its position."""
    return [path[index] if part == "*" else part for index, part in enumerate(name)]


def _insert(tree: dict[str, Any], path: list[str], value: Any) -> None:
    first, *rest = path
    if rest:
        _insert(tree.setdefault(first, {}), rest, value)
    else:
        others = {key: each for key, each in tree.items() if key != first}
        tree.clear()
        tree.update({first: value, **others})
