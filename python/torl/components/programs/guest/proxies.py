"""Objects of a program, and results that are not known yet, as the tests of a problem see them.

What is expected never leaves the side of the tests. An object that is no data equals no data: it could claim to equal
everything. Its arithmetic and its order with data are refused for the same reason, except for classes that the problem
asks for.
"""

import builtins
import operator
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torl.components.programs.guest.transfer import decode

_MAX_CHUNK = 64


class Suspended(BaseException):
    """Ends a pass: its next step needs a result that is not known."""


class Operations(Protocol):
    """What executes the operations on a program.

    Attributes:
        classes: Numbers of the classes that the problem asks for.
    """

    classes: set[int]

    def do(self, name: str, values: list[Any]) -> Any:
        """Return the result of an operation."""
        ...

    def object_of(self, found: dict[str, Any]) -> Any:
        """Return the object here of an object of the program."""
        ...


def number_of(proxy: "Proxy") -> int:
    number: int = object.__getattribute__(proxy, "_found")["handle"]
    return number


class Proxy:
    """An object of the program. Has the data of an object whose class derives from a type of data."""

    __slots__ = ("_data", "_found", "_play")

    def __init__(self, play: Operations, found: dict[str, Any]) -> None:
        put = object.__setattr__
        put(self, "_play", play)
        put(self, "_found", found)
        put(self, "_data", decode(found["data"], play.object_of) if "data" in found else Ellipsis)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            data = object.__getattribute__(self, "_data")
            return Proxy if data is Ellipsis else type(data)
        if name in ("__dict__", "__mro__", "__bases__", "__wrapped__", "__signature__", "__test__", "__iter__"):
            raise AttributeError(name)
        return _do(self, "attribute", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        _do(self, "set", self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _do(self, "call", self, list(arguments), named)

    def __getitem__(self, key: Any) -> Any:
        return _do(self, "item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _do(self, "set_item", self, key, value)

    def __delitem__(self, key: Any) -> None:
        _do(self, "delete_item", self, key)

    def __contains__(self, item: Any) -> bool:
        if _is_plain(item) and not _is_asked_for(self):
            return any(each == item for each in self)
        return bool(_do(self, "contains", self, item))

    def __iter__(self) -> Iterator[Any]:
        data = object.__getattribute__(self, "_data")
        return _items(_do(self, "iter", self)) if data is Ellipsis else iter(data)

    def __next__(self) -> Any:
        items, _ = _pair(_do(self, "next", self, 1))
        if not items:
            raise StopIteration
        return items[0]

    def __eq__(self, other: object) -> bool:
        return _compare("eq", self, other)

    def __ne__(self, other: object) -> bool:
        return _compare("ne", self, other)

    def __hash__(self) -> int:
        data = object.__getattribute__(self, "_data")
        return int(_do(self, "hash", self)) if data is Ellipsis else hash(data)

    def __bool__(self) -> bool:
        data = object.__getattribute__(self, "_data")
        return bool(_do(self, "bool", self) if data is Ellipsis else data)

    def __enter__(self) -> Any:
        return _do(self, "call", _do(self, "attribute", self, "__enter__"), [], {})

    def __exit__(self, *error: object) -> Any:
        return _do(self, "call", _do(self, "attribute", self, "__exit__"), [None, None, None], {})

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is Proxy and bool(_do(self, "isinstance", value, self))

    def __subclasscheck__(self, value: object) -> bool:
        return type(value) is Proxy and bool(_do(self, "issubclass", value, self))


def _do(proxy: Proxy, name: str, *values: Any) -> Any:
    play: Operations = object.__getattribute__(proxy, "_play")
    return play.do(name, list(values))


def _pair(result: Any) -> Any:
    return ([], False) if type(result) is Unknown else result


def _is_plain(value: object) -> bool:
    return type(value) is not Proxy and type(value) is not Unknown


def _is_asked_for(proxy: Proxy) -> bool:
    """Whether an object is of a class that the problem asks for."""
    play: Operations = object.__getattribute__(proxy, "_play")
    return object.__getattribute__(proxy, "_found").get("of") in play.classes


def data_of(value: Any) -> Any:
    """Return the data of a proxy, Ellipsis for one without, and any other value itself."""
    return object.__getattribute__(value, "_data") if type(value) is Proxy else value


def _compare(name: str, proxy: Proxy, other: Any) -> bool:
    if type(other) is Unknown:
        return True
    mine, its = data_of(proxy), data_of(other)
    if mine is not Ellipsis and its is not Ellipsis:
        return bool(getattr(operator, name)(mine, its))
    if _is_plain(other):
        return name == "ne"
    return bool(_do(proxy, name, proxy, other))


def _items(iterator: Any) -> Iterator[Any]:
    """Yield the items of an iterator of the program, in chunks that double."""
    count = 1
    more = type(iterator) is not Unknown
    while more:
        items, more = _pair(_do(iterator, "next", iterator, count))
        yield from items
        count = min(2 * count, _MAX_CHUNK)


def _binary(name: str, *, swapped: bool = False, is_order: bool = False) -> Callable[[Proxy, Any], Any]:
    def method(proxy: Proxy, other: Any) -> Any:
        if type(other) is Unknown:
            return Unknown()
        pair = (other, proxy) if swapped else (proxy, other)
        one, two = map(data_of, pair)
        if one is not Ellipsis and two is not Ellipsis:
            return getattr(operator, name)(one, two)
        if _is_plain(other) and (is_order or not _is_asked_for(proxy)):
            return NotImplemented
        return _do(proxy, name, *pair)

    return method


def _unary(name: str) -> Callable[..., Any]:
    def method(proxy: Proxy, *more: Any) -> Any:
        data = data_of(proxy)
        function = getattr(builtins, name, None) or getattr(operator, name)
        return _do(proxy, name, proxy, *more) if data is Ellipsis else function(data, *more)

    return method


_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
)
for _name in _ARITHMETIC:
    _short = _name.strip("_")
    setattr(Proxy, f"__{_short}__", _binary(_name))
    setattr(Proxy, f"__r{_short}__", _binary(_name, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _binary(_name, is_order=True))
for _name in (
    "neg",
    "pos",
    "invert",
    "abs",
    "len",
    "str",
    "repr",
    "int",
    "float",
    "index",
    "reversed",
    "round",
    "bytes",
):
    setattr(Proxy, f"__{_name}__", _unary(_name))


class Unknown:
    """The result of an operation that is not known yet: whatever is done with it works, and says nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Unknown()

    def __init_subclass__(cls) -> None:
        raise Suspended


def _unknown(*_: Any, **__: Any) -> Any:
    return Unknown()


for _name in (
    *_ARITHMETIC,
    *(f"r{each}" for each in _ARITHMETIC),
    "neg",
    "pos",
    "invert",
    "abs",
    "call",
    "getitem",
    "enter",
    "round",
    "reversed",
):
    setattr(Unknown, f"__{_name.strip('_')}__", _unknown)
for _name, _value in {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck", "subclasscheck"), True),
    "len": 0,
    "int": 0,
    "float": 0.0,
    "index": 0,
    "hash": 0,
    "str": "",
    "repr": "",
    "bytes": b"",
    "exit": False,
    "setitem": None,
    "delitem": None,
    "setattr": None,
}.items():
    setattr(Unknown, f"__{_name}__", lambda *_, value=_value: value)
Unknown.__iter__ = lambda self: iter(())  # type: ignore[attr-defined]
