"""Whether the outcome of a call agrees with itself."""

from collections.abc import Mapping
from typing import Any

from torl.records.rows import MAX_OUTPUT_CHARACTERS
from torl.types import Outcome


def is_complete(outcome: Outcome) -> bool:
    """Whether the record holds all of its texts, none of them cut."""
    return all(map(_is_whole, (outcome.text, outcome.error, outcome.details)))


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) < MAX_OUTPUT_CHARACTERS
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return all(map(_is_whole, members))


def python_mismatch(outcome: Outcome) -> str | None:
    """What does not follow from the details of a run of Python; None if its text and its error do.

    A run that ended well says what it printed. One that did not says the line of its traceback with the type and the
    message, or what it gave to `sys.exit`, which leaves none; one that was stopped from outside says nothing.
    """
    stdout, traceback = outcome.details.get("stdout"), outcome.details.get("traceback")
    if stdout is None:
        return "it ended well without having run" if outcome.ok else None
    if outcome.ok:
        return None if (outcome.text, outcome.error) == (stdout, None) else "it says something else than was printed"
    if outcome.error is None:
        return "it says something, and had no exception" if outcome.text or traceback else None
    if not traceback:
        return None if outcome.text.startswith(outcome.error) else "it does not say its error"
    # A group's lines have a margin, and a class may be named with its module.
    lines = {line.lstrip(" |+") for line in traceback.splitlines()}
    named = outcome.text.partition(":")[0].endswith(outcome.error)
    if not (named and outcome.text in lines | {outcome.error}) or outcome.error not in traceback:
        return "it says something else than the line of its traceback with the exception"
    return None
