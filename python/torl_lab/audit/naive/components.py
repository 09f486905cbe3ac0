"""The formula of a chosen component: the audit's own for each of torl's, and the component itself for any other."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torl.base.options import Choice

Formulas = Mapping[str, Callable[..., Any]]
"""Formulas by the places of the functions that they repeat, `module:name`."""


def location_of(target: Any) -> str:
    """Return the place of a component's function or class."""
    return f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', '')}"


def formula_or_component(choice: Choice[Any], formulas: Formulas) -> Callable[..., Any]:
    """Return the formula with the options of a choice; for a component without one, the component itself."""
    formula = formulas.get(location_of(choice.target))
    return choice.bind() if formula is None else partial(formula, **choice.options.model_dump())
