"""Objects of the other side, as a test or a program sees them.

Expected values never leave the side of the tests. There, an object without data equals no data: it could claim to
equal everything. Its arithmetic with data, its order, and what else would hand over what is expected are refused for
the same reason, except for objects that the test itself makes of the classes that the problem asks for.
"""

import operator
import types
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from torl.components.programs.guest.unknown import Unknown

_MAX_CHUNK = 1024
_HIDDEN = ("__mro__", "__bases__", "__wrapped__", "__signature__", "__test__", "__iter__")
_PREDICATES = {"equals", "startswith", "endswith", "issubset", "issuperset", "isdisjoint"}
"""Methods that would learn what is expected, and answer whether they are it."""
BINARY = "add sub mul truediv floordiv mod divmod pow matmul and_ or_ xor lshift rshift"
ORDERS = "lt le gt ge"
_REFUSED = {f"__{r}{name.strip('_')}__" for name in BINARY.split() for r in ("", "r", "i")} | {
    f"__{name}__" for name in ("eq", "ne", "contains", *ORDERS.split())
}
"""Special methods that a test may call by name."""


class Side(Protocol):
    """The side of the tests, or of the program.

    Attributes:
        ahead: Items that were read of iterators of the other side, and not used yet, by number.
        trusting: Whether to hand over all data. The program's side has nothing to hide.
    """

    ahead: dict[int, deque[Any]]
    trusting: bool

    def do(self, name: str, values: list[Any]) -> Any:
        """Return the result of an operation on an object of the other side."""
        ...

    def decoded(self, value: Any) -> Any:
        """Return the value of JSON."""
        ...

    def proxy(self, found: dict[str, Any], role: str = "") -> "Proxy":
        """Return the proxy of an object of the other side."""
        ...

    def leave(self, name: str, context: "Proxy", error: BaseException | None) -> bool:
        """Leave a context by "exit" or "aexit", and return whether it suppresses an error."""
        ...

    def refuse(self, reason: str) -> BaseException:
        """Let the test fail, since it would hand over what it expects, and return what to raise."""
        ...

    def obstruct(self, reason: str) -> BaseException:
        """Record why a test cannot be judged, and return what to raise."""
        ...


class Proxy:
    """An object of the other side. Has the data of an object whose class derives from a type of data.

    Its role is "class" for a class that the problem asks for, if the test took it by its name, "object" for what such
    a class returns when the test calls it, and for results of its arithmetic, and "" for anything else.
    """

    __slots__ = ("_data", "_found", "_role", "_side")

    def __init__(self, side: Side, found: dict[str, Any], role: str = "") -> None:
        for name, value in (("_side", side), ("_found", found), ("_role", role)):
            object.__setattr__(self, name, value)
        data = side.decoded(found["data"]) if "data" in found else Ellipsis
        object.__setattr__(self, "_data", data)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return _class_of(self)
        if name in _HIDDEN:
            raise AttributeError(name)
        if name in ("__deepcopy__", "__mro_entries__"):
            return object.__getattribute__(self, name)
        if not may_see(self) and (name in _PREDICATES or name in _REFUSED):
            raise AttributeError(name)
        return do(self, "attribute", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        do(self, "set", self, name, value)

    def __delattr__(self, name: str) -> None:
        do(self, "delete", self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = do(self, "call", self, list(arguments), named)
        return with_role(result, "object") if slot(self, "_role") == "class" else result

    def __getitem__(self, key: Any) -> Any:
        return do(self, "item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        do(self, "set_item", self, key, value)

    def __delitem__(self, key: Any) -> None:
        do(self, "delete_item", self, key)

    def __contains__(self, item: Any) -> bool:
        if is_plain(item) and not may_see(self):
            return any(each == item for each in self)
        return bool(do(self, "contains", self, item))

    def __iter__(self) -> Iterator[Any]:
        data = data_of(self)
        return _items(do(self, "iter", self)) if data is Ellipsis else iter(data)

    def __next__(self) -> Any:
        return _next_item(self, 1)

    def __eq__(self, other: object) -> bool:
        return _compare("eq", self, other)

    def __ne__(self, other: object) -> bool:
        return _compare("ne", self, other)

    def __hash__(self) -> int:
        data = data_of(self)
        return int(do(self, "hash", self)) if data is Ellipsis else hash(data)

    def __enter__(self) -> Any:
        return do(self, "enter", self)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> Any:
        return bool(slot(self, "_side").leave("exit", self, error))

    async def __aenter__(self) -> Any:
        return do(self, "aenter", self)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> Any:
        return bool(slot(self, "_side").leave("aexit", self, error))

    def __aiter__(self) -> Any:
        return do(self, "aiter", self)

    async def __anext__(self) -> Any:
        return do(self, "anext", self)

    def __deepcopy__(self, memo: object) -> Any:
        return with_role(do(self, "deepcopy", self), slot(self, "_role"))

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is Proxy and bool(do(self, "isinstance", value, self))

    def __subclasscheck__(self, value: object) -> bool:
        return type(value) is Proxy and bool(do(self, "issubclass", value, self))

    def __mro_entries__(self, bases: object) -> Any:
        raise slot(self, "_side").obstruct("the test derives a class from a class of the program")


slot = object.__getattribute__


def number_of(proxy: Proxy) -> int:
    number: int = slot(proxy, "_found")["mine"]
    return number


def data_of(value: Any) -> Any:
    """Return the data of a proxy, Ellipsis for one without, and any other value itself."""
    return slot(value, "_data") if type(value) is Proxy else value


def with_role(value: Any, role: str) -> Any:
    """Return a proxy with a role; any other value unchanged."""
    if type(value) is not Proxy:
        return value
    found = {key: each for key, each in slot(value, "_found").items() if key != "data"}
    made = slot(value, "_side").proxy(found, role)
    object.__setattr__(made, "_data", data_of(value))
    return made


def do(proxy: Proxy, name: str, *values: Any) -> Any:
    return slot(proxy, "_side").do(name, list(values))


def _pair(result: Any) -> Any:
    return ([], False) if type(result) is Unknown else result


def is_plain(value: object) -> bool:
    return type(value) is not Proxy and type(value) is not Unknown


def may_see(proxy: Proxy) -> bool:
    """Whether an object may be handed what the test compares it with."""
    return bool(slot(proxy, "_role") or slot(proxy, "_side").trusting)


def _class_of(proxy: Proxy) -> Any:
    data, found = data_of(proxy), slot(proxy, "_found")
    if data is not Ellipsis:
        return type(data)
    if found.get("kind") == "generator":
        return types.GeneratorType
    return slot(proxy, "_side").proxy(found["of"]) if found.get("of") else Proxy


def _compare(name: str, proxy: Proxy, other: Any) -> bool:
    if type(other) is Unknown:
        return True
    mine, its = data_of(proxy), data_of(other)
    if mine is not Ellipsis and its is not Ellipsis:
        return bool(getattr(operator, name)(mine, its))
    if is_plain(other) and not slot(proxy, "_side").trusting:
        return name == "ne"
    return bool(do(proxy, name, proxy, other))


def _items(iterator: Any) -> Iterator[Any]:
    """Yield the items of an iterator of the other side, in chunks that double."""
    count = 1
    while type(iterator) is Proxy:
        try:
            yield _next_item(iterator, count)
        except StopIteration:
            return
        count = min(2 * count, _MAX_CHUNK)


def _next_item(iterator: Proxy, count: int) -> Any:
    """Return the next item of an iterator, and keep what else of a number of items was read.

    Raises:
        StopIteration: The iterator has no more items.
    """
    ahead = slot(iterator, "_side").ahead.setdefault(number_of(iterator), deque())
    if not ahead:
        items, _ = _pair(do(iterator, "next", iterator, count))
        ahead.extend(items)
    if not ahead:
        raise StopIteration
    return ahead.popleft()
