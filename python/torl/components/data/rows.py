"""Rows of files: errors, copies, and fields that have a value or would change a prompt or the loss.

A reader names the fields that it knows. Another field is refused if its name says that it would change the prompt or
the loss, and reported otherwise: no field is dropped silently.
"""

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, time, timedelta
from functools import cache
from typing import Any

from torl.base.errors import DataError
from torl.base.types import Problem


class InvalidRowError(DataError):
    """A row that is not a problem. The message has its location and the reason."""

    def __init__(self, location: str, reason: str, message: str) -> None:
        """Describe the row.

        Args:
            location: Location of the row.
            reason: Short name of the reason, by which such rows are counted.
            message: The reason in full.
        """
        super().__init__(f"{location}: {message}")
        self.location, self.reason = location, reason


class SkippedRowError(InvalidRowError):
    """A row that is left out on purpose: a copy, a row that a filter excludes, or a program that cannot be judged."""


def row_id(location: str) -> str:
    """Return the id of a row without one: "line-3" for "train.jsonl, line 3"."""
    return location.rsplit(", ", maxsplit=1)[1].replace(" ", "-")


class NumberLiteral(str):
    """A JSON number in its original spelling."""


SYSTEM_FIELDS = ("system", "system_prompt", "system_message")
"""Names of a row's system message."""
TOOL_FIELDS = ("tools", "functions")
"""Names of a row's tools: OpenAI's present and older ones."""
LABEL = "label"
"""Whether the response of a row is a good one (KTO)."""

QUESTION_PARTS = ("input", "context")
"""Names of the rest of a question: without it, the response answers another one (Alpaca, Dolly)."""

_PREFIXES = ("prefix", "partial", "continue_final_message")  # of a message that the model continues
_TEMPLATE = ("documents", "chat_template", "chat_template_kwargs")
_PROMPT_FIELDS = frozenset((*SYSTEM_FIELDS, *TOOL_FIELDS, "history", *_TEMPLATE, *_PREFIXES))
_MEDIA = frozenset(f"{medium}{plural}" for medium in ("image", "video", "audio") for plural in ("", "s"))
_LOSS = frozenset(("loss", "mask", "masks", "masked", "train", "trained", "training", "trainable", "weight", "weights"))
_LOSS_FIELDS = frozenset(("labels",))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_WRITTEN_MARK = re.compile(r"\s*(?:[\[{].*|true|false|yes|no|[-+]?[\d.]+(?:e[-+]?\d+)?)\s*", re.DOTALL | re.IGNORECASE)
_MAX_DIGITS = 19  # of the number of a row
_IGNORE = "name it in finetune.train.ignore"
_TIMES = (date, time, timedelta)  # a datetime is a date


def describe(value: Any) -> str:
    """Return the type of a value of a row, for error messages."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text", bytes: "bytes"}
    return kinds.get(type(value)) or ("a date or a time" if isinstance(value, _TIMES) else "a number")


def is_missing(value: Any) -> bool:
    """Whether a value is null, or NaN, which pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def has_value(value: Any) -> bool:
    """Whether a value says something: null, NaN, blank text, and objects and lists of nothing else do not.

    Parquet and `datasets` give each object the members of all others, without a value.
    """
    if isinstance(value, str):
        return bool(value) and not value.isspace()
    if isinstance(value, dict | list):
        return any(map(has_value, value.values() if isinstance(value, dict) else value))
    return not is_missing(value)


def is_given(fields: Mapping[str, Any], name: str) -> bool:
    """Whether a field has a value, or is a list with members, though these say nothing."""
    value = fields.get(name)
    return value is not None and (bool(value) if isinstance(value, list) else has_value(value))


@cache
def effect_of(name: str) -> str | None:
    """Return what a field of this name would change: "the prompt", "the loss", or None."""
    words = _words(name)
    if name in _LOSS_FIELDS or words & _LOSS:
        return "the loss"
    return "the prompt" if name in _PROMPT_FIELDS or words & _MEDIA else None


def changes_nothing(name: str, value: Any) -> bool:
    """Whether a field that no reader knows leaves the prompt and the loss as they are.

    A name with other words, such as "train_test" or "used_in_training", may speak of something else than the loss: its
    value must be able to be a mark.
    """
    effect = effect_of(name)
    if effect is None or not has_value(value):
        return True
    return not (_words(name) <= _LOSS or _may_be_mark(value)) if effect == "the loss" else not value


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def _may_be_mark(value: Any) -> bool:
    """Whether a value is true, false, a number or the text of one, or has one inside."""
    if isinstance(value, dict | list):
        return any(map(_may_be_mark, value.values() if isinstance(value, dict) else value))
    return not is_missing(value) if not isinstance(value, str) else _WRITTEN_MARK.fullmatch(value) is not None


def note_unread(
    where: str, fields: Mapping[str, Any], known: Collection[str], unread: set[str], suffix: str = ""
) -> None:
    """Add the fields with a value that are not known to `unread`.

    Args:
        where: Location of the fields, for errors.
        fields: Fields of a row, or of an object in it.
        known: Names of the fields that are read.
        unread: Set that receives the names.
        suffix: Text after each name, such as " of segments".

    Raises:
        DataError: Such a field would change the prompt or the loss.
    """
    for name, value in fields.items():
        if name in known or not has_value(value):
            continue
        require_harmless(where, name, value)
        unread.add(f"{name}{suffix}")


def require_harmless(where: str, name: str, value: Any) -> None:
    """Raise `DataError` if a field that is not read would change the prompt or the loss."""
    if not changes_nothing(name, value):
        raise DataError(
            f"{where}: {name!r} would change {effect_of(name)} and is not read here, got {describe(value)}: remove "
            f"it, or {_IGNORE}"
        )


def require_whole_question(where: str, unread: Collection[str]) -> None:
    """Raise `DataError` if a part of a question is among the fields that are not read."""
    if parts := [name for name in QUESTION_PARTS if name in unread]:
        raise DataError(
            f"{where}: {parts[0]!r} is a part of the question, and the prompt has no place for it: name the question "
            f"'instruction' and the response 'output' in finetune.train.columns, which puts it after the question, or "
            f"{_IGNORE}"
        )


def read_mark(where: str, name: str, value: Any) -> bool | None:
    """Return a mark of the loss: true, 1 and 1.0 are equal, and false, 0 and 0.0. None if it has no value.

    Raises:
        DataError: The value is another one.
    """
    if is_missing(value):
        return None
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise DataError(
            f"{where}: {name!r} must be true or false, or 1 or 0, got {value!r:.60}; if it is not a mark of the loss, "
            f"{_IGNORE}"
        )
    return bool(value)


def require_read(location: str, fields: Mapping[str, Any], known: Collection[str], hint: str) -> None:
    """Check that no field of a problem changes its prompt without being read.

    Args:
        location: Location of the fields, for errors.
        fields: Fields of the row, or of an object in it.
        known: Names of the fields that are read.
        hint: How to leave a field out, for errors.

    Raises:
        InvalidRowError: Such a field would change the prompt.
    """
    for name, value in fields.items():
        if name not in known and effect_of(name) == "the prompt" and not changes_nothing(name, value):
            message = f"{name!r} would change the prompt and is not read, got {describe(value)}; {hint}"
            raise InvalidRowError(location, "unread_field", message)


class EarlierRows:
    """The earlier rows of a file: 130 bytes for each row with an id, and 8 for each row without."""

    def __init__(self) -> None:
        self._contents: dict[int, int] = {}  # hashes of the contents of rows with an id, by hashes of the ids
        self._unnamed = array("Q")  # numbers of the rows without an id

    def add(self, location: str, problem: Problem, *, replaceable: bool = False) -> Problem:
        """Remember a row, and return its problem.

        Args:
            location: Location of the row.
            problem: Problem of the row.
            replaceable: Whether the row gets the id of its location if another row has its id.

        Raises:
            SkippedRowError: The row is a copy.
            InvalidRowError: Another row has its id.
        """
        kind, _, number = row_id(location).rpartition("-")
        if problem.id == row_id(location) and hash(problem.id) not in self._contents:
            self._unnamed.append(int(number))
            return problem
        content, before = hash((problem.question, problem.answer)), len(self._contents)
        first = self._contents.setdefault(hash(problem.id), content)
        if first != content and replaceable:
            self._contents.setdefault(hash((problem.id, content)), content)  # so that copies of this row are found
            if len(self._contents) > before:
                return self.add(location, replace(problem, id=row_id(location)))
        elif first != content or self._has_unnamed(problem.id, kind):
            message = f"the id {problem.id!r} was already used for another problem"
            raise InvalidRowError(location, "repeated_id", message)
        if len(self._contents) == before:
            raise SkippedRowError(location, "copy", f"a copy of the row with the id {problem.id!r}")
        return problem

    def _has_unnamed(self, identifier: str, kind: str) -> bool:
        """Whether an earlier row without an id is called so: "line-3" of the third line."""
        number = identifier.removeprefix(f"{kind}-")
        if number == identifier or not number.isdecimal() or len(number) > _MAX_DIGITS:
            return False
        place = bisect_left(self._unnamed, int(number))
        return place < len(self._unnamed) and f"{kind}-{self._unnamed[place]}" == identifier
