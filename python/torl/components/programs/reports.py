"""Values that a program reports, read outside the sandbox. A program can forge them: nothing here may take long."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

_MAX_DEPTH: Final = 250


class ReportError(Exception):
    """A report has no form that the harness writes, or a value that no test expects."""


class Opaque:
    """An object of a program without a form as data. Equals nothing."""

    def __repr__(self) -> str:
        return "an object of a class of its own"


class Pairs(Mapping[Any, Any]):
    """A dictionary that a program reports. Its keys are not hashed: they could all collide."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._pairs)

    def __getitem__(self, key: Any) -> Any:
        return next(value for each, value in self._pairs if each == key)

    def items(self) -> Any:
        return self._pairs

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: {value!r}" for key, value in self._pairs) + "}"


class Items(Set[Any]):
    """A set that a program reports. Its items are not hashed."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __hash__(self) -> int:
        return self._hash()  # the hash of an equal frozenset

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self._items)) + "}"


def read_value(report: Any, depth: int = 0) -> Any:
    """Return the value of JSON that `guest.transfer.encode` wrote in the sandbox, as plain data.

    Raises:
        ReportError: The JSON has another form.
    """
    if depth > _MAX_DEPTH:
        raise ReportError("the value is nested too deeply")
    if isinstance(report, list):
        return [read_value(each, depth + 1) for each in report]
    if not isinstance(report, dict):
        return report
    if "mine" in report:
        return read_value(report["data"], depth + 1) if "data" in report else Opaque()
    if len(report) != 1:
        raise ReportError("the value has no tag")
    ((tag, content),) = report.items()
    try:
        return _read_tagged(tag, content, depth + 1)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ReportError(str(error)) from None


def _read_tagged(tag: str, content: Any, depth: int) -> Any:
    if tag == "int":
        return int(content, 16)
    if tag in ("bytes", "bytearray"):
        return bytes.fromhex(content)
    if tag == "scalar":
        return read_value(content[1], depth)
    if tag in ("type", "constant", "array", "date", "time", "datetime", "timedelta", "slice", "values", "numbers"):
        return Opaque()
    items = [read_value(each, depth) for each in (content[1] if tag == "defaultdict" else content)]
    if tag in ("tuple", "deque"):
        return tuple(items)
    if tag in ("set", "frozenset", "keys", "items"):
        return Items(list(map(_hashable, items)))
    if tag in ("dict", "ordered", "defaultdict", "counter"):
        return Pairs([(_hashable(key), value) for key, value in items])
    if tag == "range":
        return range(*items) if len(range(*items)) else ()
    if tag == "complex":
        return complex(*items)
    if tag == "fraction":
        return items[0] / items[1]
    if tag == "decimal":
        return float(items[0])
    raise ReportError(f"unknown tag {tag}")


def _hashable(value: Any) -> Any:
    hash(value)
    return value
