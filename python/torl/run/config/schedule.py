"""Settings whose value changes with the training step: a list of [step, value] pairs instead of a number.

    [rollout]
    max_response_tokens = [[0, 18_000], [120, 32_000]]     # 18,000 before step 120, then 32,000

A field accepts such a list if it is marked with `BY_STEP`, and an option of a choice if the choice has `by_step`. The
field itself holds the largest value, which decides memory and limits; `ModelRunConfig.at_step` returns the
configuration of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel

from torl.base.options import Choice
from torl.run.config.fields import choice_at

Path: TypeAlias = tuple[str, ...]
"""Location of a setting: its keys."""
Schedule: TypeAlias = tuple[tuple[int, float], ...]
"""Pairs of a step and the value from this step on. The steps ascend from 0."""

Config = TypeVar("Config")


class _ByStep:
    """The mark of a field whose value may change with the step."""


BY_STEP = _ByStep()


def take_schedules(config_class: type[BaseModel], tree: Mapping[str, Any]) -> dict[Path, Schedule]:
    """Return the schedules in a configuration tree, by their locations.

    Raises:
        ValueError: The steps of a schedule do not ascend from 0.
    """
    found: dict[Path, Schedule] = {}

    def visit(table: Mapping[str, Any], path: Path) -> None:
        for key, value in table.items():
            place = (*path, key)
            if isinstance(value, Mapping):
                visit(value, place)
            elif _is_list_of_pairs(value) and _accepts_schedule(config_class, place):
                found[place] = tuple((step, number) for step, number in value)
                _check_steps(place, found[place])

    visit(tree, ())
    return found


def value_at(schedule: Schedule, step: int) -> float:
    """Return the value of a schedule at a step, from 0."""
    return next(value for first, value in reversed(schedule) if first <= step)


def with_tree_values(tree: Mapping[str, Any], values: Mapping[Path, Any]) -> dict[str, Any]:
    """Return a copy of a tree of tables with values at some locations."""
    return {
        key: values[(key,)]
        if (key,) in values
        else with_tree_values(value, {path[1:]: each for path, each in values.items() if path[0] == key and path[1:]})
        if isinstance(value, Mapping)
        else value
        for key, value in tree.items()
    }


def value_in(config: Any, path: Path) -> Any:
    """Return the value at a location below a section, a choice or a table."""
    for key in path:
        node = config.options if isinstance(config, Choice) else config
        config = node[key] if isinstance(node, dict) else getattr(node, key)
    return config


def with_value(config: Config, path: Path, value: Any) -> Config:
    """Return a copy of a section, a choice or a table with a value at a location below it."""
    key, *rest = path
    node: Any = config
    if isinstance(node, Choice):
        return replace(node, options=node.options.model_copy(update={key: value}))  # type: ignore[return-value]
    if isinstance(node, dict):
        return {**node, key: with_value(node[key], tuple(rest), value)}  # type: ignore[return-value]
    changed = with_value(getattr(node, key), tuple(rest), value) if rest else value
    copied: Config = node.model_copy(update={key: changed})
    return copied


def _is_list_of_pairs(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    return is_list and all(isinstance(each, list | tuple) and len(each) == 2 for each in value)


def _accepts_schedule(config_class: type[BaseModel], path: Path) -> bool:
    section = config_class.model_fields.get(path[0])
    if section is None or section.exclude:
        return False
    choice = choice_at(config_class, path[:-1])
    if choice is not None:
        return choice.by_step
    fields: Mapping[str, Any] = config_class.model_fields
    info: Any = None
    for key in path:
        if (info := fields.get(key)) is None:
            return False
        fields = getattr(info.annotation, "model_fields", {})
    return any(isinstance(each, _ByStep) for each in info.metadata)


def _check_steps(path: Path, schedule: Schedule) -> None:
    steps = [step for step, _ in schedule]
    name = ".".join(path)
    if any(not isinstance(step, int) or isinstance(step, bool) for step in steps):
        raise ValueError(f"{name}: each pair must begin with a step, a whole number, got {steps}")
    if steps[0] != 0 or any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError(f"{name}: the steps must ascend from 0, got {steps}")
    if any(not isinstance(value, int | float) or isinstance(value, bool) for _, value in schedule):
        raise ValueError(f"{name}: each pair must end with a number, got {[value for _, value in schedule]}")
