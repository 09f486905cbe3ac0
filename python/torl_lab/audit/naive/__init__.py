"""The audit's own formulas: a second implementation of what a run computes, in plain Python, one number at a time.

They follow `docs/algorithms.md` and the definitions of `torl.run.records.metric_names`, read the fields of the records,
and call none of the functions that they check. They share with a run only what is a definition, not a formula: the
types of a record, the names of metrics, settings, `derive_seed` with the generators of Python and NumPy, and the
parsers of boxed answers and of a format's result tags. `tests/project/test_layout.py` has the list.

A component is found by the place of its function (`location_of`). One that has no formula here, such as a user's, is
called a second time, and a note of the audit names it.
"""

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
