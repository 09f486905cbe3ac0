"""The side of a program, or of its tests: its own objects, and proxies of the objects of the other side.

A message names an object of its sender by {"mine": NUMBER, ...}, and an object of its receiver by {"yours": NUMBER}.
"""

import sys
import types
from collections import deque
from typing import Any

from torl.components.programs.guest.operators import install
from torl.components.programs.guest.proxies import Proxy, number_of
from torl.components.programs.guest.transfer import decode, encode, plain_part
from torl.components.programs.guest.unknown import Suspended, Unknown

_KINDS = {types.GeneratorType: "generator", types.FunctionType: "function", types.CoroutineType: "coroutine"}
_FORBIDDEN = ("unittest", "pytest", "torl", "__harness__", "tests")
"""Packages whose exceptions steer a test."""
_MAX_TEXT = 2_000
install()


class BaseSide:
    """Both sides.

    Attributes:
        ahead: Items that were read of iterators of the other side, and not used yet, by number.
        own_modules: Names of the modules whose classes cross as classes of this side.
        trusting: Whether to hand over all data to the other side.
    """

    own_modules: tuple[str, ...] = ()
    trusting = True

    def __init__(self) -> None:
        self.ahead: dict[int, deque[Any]] = {}
        self._objects: list[object] = []
        self._numbers: dict[int, int] = {}  # of own objects, by id
        self._received: dict[int, Any] = {}  # exceptions, their classes, and functions of the other side, by number
        self._returned: dict[int, int] = {}  # their numbers, by id
        self._proxies: dict[tuple[int, str], Proxy] = {}
        self._sent: dict[int, Any] = {}  # data of own objects that can change, as sent last

    def do(self, name: str, values: list[Any]) -> Any:
        """Return the result of an operation on an object of the other side."""
        raise NotImplementedError

    def leave(self, name: str, context: Proxy, error: BaseException | None) -> bool:
        """Leave a context of the other side, and return whether it suppresses an error."""
        return bool(self.do(name, [context, error]))

    def refuse(self, reason: str) -> BaseException:
        return TypeError(reason)

    def obstruct(self, reason: str) -> BaseException:
        return TypeError(reason)

    def encoded(self, value: object) -> Any:
        """Return a value as JSON."""
        return encode(value, self.described)

    def decoded(self, value: Any) -> Any:
        """Return the value of JSON."""
        return decode(value, lambda found: self.received(found) if "mine" in found else self._objects[found["yours"]])

    def number(self, value: object) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # kept, so that no other object gets its id
        return number

    def described(self, value: Any) -> dict[str, Any]:
        """Return the JSON of an object without a form as data."""
        if type(value) is Proxy:
            return {"yours": number_of(value)}
        if type(value) is Unknown:
            raise Suspended
        if id(value) in self._returned:
            return {"yours": self._returned[id(value)]}
        self.check(value)
        found: dict[str, Any] = {"mine": self.number(value)}
        if isinstance(value, type):
            found["class"] = value.__name__
            if issubclass(value, BaseException):
                bases = value.__bases__ if self._is_own(value) else (value, *value.__bases__)
                found["bases"] = [self._base(base) for base in bases if issubclass(base, BaseException)]
            return found
        kind = type(value)
        if isinstance(value, BaseException):
            return {**found, "error": self._error(value)}
        if kind in _KINDS:
            found |= {"kind": _KINDS[kind], "name": str(getattr(value, "__name__", ""))}
        elif (data := plain_part(value)) is not None:
            found["data"] = encode(data, self.described, 1)
            if isinstance(data, list | dict | set):
                self._sent[found["mine"]] = found["data"]
        if self._is_own(kind):
            found["of"] = {"mine": self.number(kind), "class": kind.__name__}
        return found

    def check(self, value: object) -> None:
        """Raise what `obstruct` returns for an object that must not cross."""

    def _is_own(self, kind: type) -> bool:
        return kind.__module__ in self.own_modules

    def _base(self, base: type) -> Any:
        is_ours = self._is_own(base) or id(base) in self._returned
        return self.described(base) if is_ours else [base.__module__, base.__name__]

    def _error(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        try:
            text = str(error)[:_MAX_TEXT]
        except Exception:
            text = ""
        try:
            arguments = self.encoded(list(error.args))
        except Exception:
            arguments = [text]
        kinds = [self._base(base) for base in kind.__mro__ if issubclass(base, BaseException)]
        cause = None if error.__cause__ is None else self.described(error.__cause__)
        return {"kinds": kinds, "text": text, "arguments": arguments, "cause": cause}

    def received(self, found: dict[str, Any]) -> Any:
        """Return the object here of an object of the other side."""
        number = found["mine"]
        if "bases" not in found and "error" not in found:
            return self.proxy(found)
        if number not in self._received:
            made = self._class(found) if "bases" in found else self._exception(found)
            self._received[number] = made
            self._returned[id(made)] = number
        return self._received[number]

    def proxy(self, found: dict[str, Any], role: str = "") -> Proxy:
        """Return the proxy of an object, the same each time."""
        place = (found["mine"], role)
        if place not in self._proxies:
            self._proxies[place] = Proxy(self, found, role)
        elif "data" in found:
            self.renew(found["mine"], found["data"])
        return self._proxies[place]

    def changed_data(self) -> list[Any]:
        """Return the number and the data of own objects whose data have changed since they were sent."""
        found = []
        for number, was in list(self._sent.items()):
            self.described(self._objects[number])
            if self._sent[number] != was:
                found.append([number, self._sent[number]])
        return found

    def renew(self, number: int, data: Any) -> None:
        """Give the proxies of an object the data that it has now."""
        for (other, _), proxy in list(self._proxies.items()):
            if other == number:
                object.__setattr__(proxy, "_data", self.decoded(data))

    def _class(self, found: dict[str, Any]) -> Any:
        """Return a class of exceptions like one of the other side, or the same one of a library."""
        bases = tuple(filter(None, map(self._exception_class, found["bases"]))) or (Exception,)
        if found["bases"][0] == [bases[0].__module__, found["class"]]:
            return bases[0]
        space = {"__getattr__": _attribute, "__str__": _text, "__module__": "other"}
        return type(found["class"], bases, space)

    def _exception_class(self, found: Any) -> Any:
        """Return the class of exceptions with a name, or like one of the other side, or None."""
        if isinstance(found, dict):
            return self.decoded(found)
        module, name = found
        kind = getattr(sys.modules.get(module), name, None)
        is_fit = isinstance(kind, type) and issubclass(kind, BaseException) and not module.startswith(_FORBIDDEN)
        return kind if is_fit else None

    def _exception(self, found: dict[str, Any]) -> BaseException:
        error = found["error"]
        kinds = filter(None, map(self._exception_class, error["kinds"]))
        kind: type[BaseException] = next(kinds, RuntimeError)
        arguments = self.decoded(error["arguments"])
        try:
            made = kind(*arguments) if kind.__module__ != "other" else kind.__new__(kind, *arguments)
        except Exception:
            made = kind.__new__(kind, *arguments)  # its `__init__` takes other arguments
        if kind.__module__ == "other":
            made.args = tuple(arguments)
            made.__dict__.update(other_text=error["text"], other=self.proxy({"mine": found["mine"]}))
        if error["cause"] is not None:
            made.__cause__ = self.decoded(error["cause"])
        return made


def _attribute(error: BaseException, name: str) -> Any:
    if name.startswith("__") or "other" not in error.__dict__:
        raise AttributeError(name)
    return getattr(error.__dict__["other"], name)


def _text(error: BaseException) -> str:
    return str(error.__dict__.get("other_text", BaseException.__str__(error)))
