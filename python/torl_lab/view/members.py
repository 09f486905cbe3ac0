"""Read some members of a long JSON object without parsing the others.

Most of a trajectory's row are arrays with a number for each token. A list of trajectories, a search and an index need
only the members before and between them.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # implemented in C, without a stub
from typing import Any

_decode = json.JSONDecoder().raw_decode
_BLANK = " \t\n\r"
_NUMERIC = frozenset("-0123456789]")


class SkippedArray:
    """An array of numbers that is parsed when it is iterated. Its length is the number of commas plus one."""

    __slots__ = ("_start", "_stop", "_text")

    def __init__(self, text: str, start: int, stop: int) -> None:
        self._text = text
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        empty = not self._text[self._start + 1 : self._stop - 1].strip()
        return 0 if empty else self._text.count(",", self._start, self._stop) + 1

    def __iter__(self) -> Iterator[float]:
        yield from json.loads(self._text[self._start : self._stop])


def read_members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object, with a `SkippedArray` for each flat array of numbers.

    Numbers in skipped arrays are not checked.

    Raises:
        ValueError: The text is not a JSON object.
    """
    return dict(_members(text))


def first_members(text: str, names: Collection[str]) -> Mapping[str, Any]:
    """Return the named members of a JSON object that may be cut at its end; members after the cut are missing."""
    found: dict[str, Any] = {}
    try:
        for name, value in _members(text):
            if name in names:
                found[name] = value
                if len(found) == len(names):
                    break
    except (ValueError, RecursionError):
        pass  # cut or damaged
    return found


def _members(text: str) -> Iterator[tuple[str, Any]]:
    position = _after_blanks(text, 0)
    if text[position : position + 1] != "{":
        raise ValueError("not a JSON object")
    position = _after_blanks(text, position + 1)
    if text[position : position + 1] == "}":
        _require_end(text, position + 1)
        return
    while True:
        if text[position : position + 1] != '"':
            raise ValueError(f"expected a name at character {position}")
        name, position = scanstring(text, position + 1, True)
        position = _after_blanks(text, position)
        if text[position : position + 1] != ":":
            raise ValueError(f"expected a colon at character {position}")
        value, position = _value(text, _after_blanks(text, position + 1))
        yield name, value
        position = _after_blanks(text, position)
        separator = text[position : position + 1]
        if separator == "}":
            _require_end(text, position + 1)
            return
        if separator != ",":
            raise ValueError(f"expected a comma at character {position}")
        position = _after_blanks(text, position + 1)


def _value(text: str, position: int) -> tuple[Any, int]:
    if text[position : position + 1] == "[" and text[position + 1 : position + 2] in _NUMERIC:
        stop = text.find("]", position) + 1
        if not stop:
            raise ValueError(f"the array at character {position} is not closed")
        if all(text.find(mark, position + 1, stop) < 0 for mark in '"[{'):
            return SkippedArray(text, position, stop), stop
    return _decode(text, position)


def _after_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in _BLANK and position < len(text):
        position += 1
    return position


def _require_end(text: str, position: int) -> None:
    if _after_blanks(text, position) != len(text):
        raise ValueError(f"unexpected text at character {position}")
