"""Values that cross between a program and its tests, as JSON. Only data crosses, never code.

Numbers, texts, lists, None and truth values are themselves; other data are objects with one key, the tag. Any other
object crosses as a handle, with its data if its class derives from a type of data.
"""

import array
import builtins
import datetime
import decimal
import fractions
import importlib
import json
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

MARK = "\x1e"
"""First character of a line that a harness prints."""
MAX_DEPTH = 200
_MAX_NUMBER = 1 << 2000  # larger integers cross in hexadecimal: decimal digits take quadratic time
_CONSTRUCTED = {
    "date": datetime.date,
    "time": datetime.time,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
    "timezone": datetime.timezone,
    "uuid": uuid.UUID,
    "fraction": fractions.Fraction,
    "decimal": decimal.Decimal,
    "complex": complex,
    "range": range,
    "slice": slice,
}
_ARGUMENTS: dict[type, Callable[[Any], list[Any]]] = {
    datetime.date: lambda v: [v.year, v.month, v.day],
    datetime.time: lambda v: [v.hour, v.minute, v.second, v.microsecond, v.tzinfo],
    datetime.datetime: lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo],
    datetime.timedelta: lambda v: [v.days, v.seconds, v.microseconds],
    datetime.timezone: lambda v: [v.utcoffset(None)],
    uuid.UUID: lambda v: [str(v)],
    fractions.Fraction: lambda v: [v.numerator, v.denominator],
    decimal.Decimal: lambda v: [str(v)],
    complex: lambda v: [v.real, v.imag],
    range: lambda v: [v.start, v.stop, v.step],
    slice: lambda v: [v.start, v.stop, v.step],
}
_ZONES = (type(None), datetime.timezone)
_NAMES = {kind: name for name, kind in _CONSTRUCTED.items()}
_DICTIONARIES = {dict: "dict", defaultdict: "defaultdict", Counter: "counter", OrderedDict: "ordered"}
_VIEWS = {type(getattr(kind(), name)()): name for kind in (dict, OrderedDict) for name in ("keys", "items", "values")}
_LIBRARIES = ("builtins", "collections", "collections.abc", "abc", "enum", "numbers")
_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": dict,
    "ordered": OrderedDict,
    "counter": lambda items: Counter(dict(items)),
    "keys": lambda items: dict.fromkeys(items).keys(),
    "items": lambda items: dict(items).items(),
    "values": lambda items: dict(enumerate(items)).values(),
}


class TransferError(Exception):
    """A value that cannot cross: nested too deeply, or in a circle."""


def encode(value: Any, handle: Callable[[object], Any], depth: int = 0) -> Any:
    """Return a value as JSON.

    Args:
        value: The value.
        handle: Returns the JSON of an object without a form as data.
        depth: Depth of the value in another.

    Raises:
        TransferError: The value is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise TransferError("the value is nested too deeply")
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -_MAX_NUMBER < value < _MAX_NUMBER else {"int": hex(value)}
    inner = _encode_data(value, kind, lambda each: encode(each, handle, depth + 1))
    return handle(value) if inner is None else inner


def _encode_data(value: Any, kind: Any, inner: Callable[[Any], Any]) -> Any:
    """Return the JSON of a value of exactly a type of data, or None for any other."""
    if kind is list:
        return [inner(each) for each in list.__iter__(value)]
    if kind is tuple:
        return {"tuple": [inner(each) for each in tuple.__iter__(value)]}
    if kind in _DICTIONARIES:
        pairs = [[inner(key), inner(each)] for key, each in dict.items(value)]
        return {_DICTIONARIES[kind]: [inner(value.default_factory), pairs] if kind is defaultdict else pairs}
    if kind is set or kind is frozenset:
        return {kind.__name__: [inner(each) for each in value]}
    if kind is bytes or kind is bytearray:
        return {kind.__name__: value.hex()}
    if kind is deque:
        return {"deque": [inner(each) for each in value]}
    if kind in _VIEWS:
        return {_VIEWS[kind]: [inner(each) for each in value]}
    if kind in _ARGUMENTS and isinstance(getattr(value, "tzinfo", None), _ZONES):
        return {_NAMES[kind]: [inner(each) for each in _ARGUMENTS[kind](value)]}
    if issubclass(kind, type) and (name := _library_name(value)) is not None:
        return {"type": name}
    if kind.__module__ == "array" and kind.__name__ == "array":
        return {"numbers": [value.typecode, inner(value.tolist())]}
    if value is Ellipsis or value is NotImplemented:
        return {"constant": repr(value)}
    return _encode_array(value, kind, inner)


def _library_name(value: type) -> str | None:
    """Return the module and the name of a class of `_LIBRARIES`, exceptions aside, or None."""
    module, name = (type.__dict__[each].__get__(value) for each in ("__module__", "__name__"))
    is_known = module in _LIBRARIES and vars(sys.modules.get(module, builtins)).get(name) is value
    is_exception = issubclass(value, BaseException) and module != "builtins"
    return f"{module}.{name}" if is_known and not is_exception else None


def is_library_class(value: object) -> bool:
    """Whether both sides have a class under the same name."""
    return issubclass(type(value), type) and _library_name(value) is not None  # type: ignore[arg-type]


def _encode_array(value: Any, kind: type, inner: Callable[[Any], Any]) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or kind.__module__ != "numpy":
        return None
    if kind is numpy.ndarray and value.dtype.kind in "biufcSU":
        return {"array": [value.dtype.str, list(value.shape), inner(value.ravel().tolist())]}
    if issubclass(kind, numpy.generic) and value.dtype.kind in "biufcSU":
        return {"scalar": [value.dtype.str, inner(value.item())]}
    return None


def plain_part(value: object) -> Any:
    """Return the data of an object whose class derives from a type of data, or None.

    The methods of the type are called, and none that the class overrides.
    """
    if isinstance(value, bool | int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, tuple):
        return tuple(tuple.__iter__(value))
    if isinstance(value, list):
        return [*list.__iter__(value)]
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, set):
        return set(set.__iter__(value))
    return None


def decode(value: Any, handled: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the value of JSON that `encode` made; `handled` returns the object of a handle."""
    if isinstance(value, list):
        return [decode(each, handled) for each in value]
    if not isinstance(value, dict):
        return value
    if "mine" in value or "yours" in value:
        return handled(value)
    ((tag, content),) = value.items()
    if tag == "int":
        return int(content, 16)
    if tag in ("bytes", "bytearray"):
        data = bytes.fromhex(content)
        return data if tag == "bytes" else bytearray(data)
    if tag == "type":
        module, _, name = content.rpartition(".")
        found = vars(importlib.import_module(module))[name] if module in _LIBRARIES else None
        return found if isinstance(found, type) else None
    if tag == "numbers":
        return array.array(content[0], decode(content[1], handled))
    if tag == "constant":
        return Ellipsis if content == "Ellipsis" else NotImplemented
    if tag in ("array", "scalar"):
        import numpy

        if tag == "scalar":
            return numpy.dtype(content[0]).type(decode(content[1], handled))
        return numpy.array(decode(content[2], handled), content[0]).reshape(content[1])
    items = decode(content, handled)
    if tag == "defaultdict":
        return defaultdict(items[0] if callable(items[0]) else None, items[1])
    if tag in _CONSTRUCTED:
        return _CONSTRUCTED[tag](*items)
    return _CONTAINERS[tag](items)


def dumps(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, separators=(",", ":"))
