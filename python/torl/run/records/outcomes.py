"""Outcomes of calls as records keep them, in plain JSON with truncated texts; recovery from failed calls."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from torl.base.types import Outcome

MAX_OUTPUT_CHARACTERS: Final = 16384


def shorten_outcome(outcome: Outcome) -> Outcome:
    """Return an outcome as records keep it, with truncated texts. A detail that equals its text is the same object."""
    text = _shortened(outcome.text)
    details = {
        name: text if isinstance(value, str) and value == outcome.text else _shortened(value)
        for name, value in outcome.details.items()
    }
    return Outcome(outcome.status, text, _shortened(outcome.error), details)


def has_recovery(succeeded: Sequence[bool]) -> bool:
    """Whether a failed run is followed by a successful one."""
    return False in succeeded and True in succeeded[succeeded.index(False) :]


def _shortened(value: Any) -> Any:
    """Return plain JSON with truncated texts, and null for numbers that are not finite."""
    if isinstance(value, str):
        return value[:MAX_OUTPUT_CHARACTERS]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _shortened(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(member) for member in value]
    return value
