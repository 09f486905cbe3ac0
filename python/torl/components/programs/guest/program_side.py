"""Beside a model's program: run the program, then the operations of its tests on it, and report each result.

The program can change all of this, since it runs in the same interpreter, and gains nothing: here are the arguments of
the tests, and never what is expected of it. A report is a claim about a result, which is compared elsewhere.
"""

import io
import json
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from torl.components.programs.guest.transfer import decode, dumps, encode, plain_part

MARK = "\x1e"
"""First character of a line with a report."""
_ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "abs": abs,
    "len": len,
    "hash": hash,
    "bool": bool,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "index": operator.index,
    "iter": iter,
    "reversed": reversed,
    "round": round,
    "bytes": bytes,
    "dir": dir,
}


class _Objects:
    """The objects of the program by number. The first is its module."""

    def __init__(self, module: types.ModuleType) -> None:
        self._objects: list[object] = [module]
        self._numbers = {id(module): 0}

    def handle(self, value: object) -> dict[str, Any]:
        """Return the JSON of an object."""
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)  # kept, so that no other object gets its id
        found: dict[str, Any] = {"handle": number}
        if isinstance(value, type):
            found["class"] = value.__name__
            if issubclass(value, BaseException):
                found["bases"] = [self._base(base) for base in value.__bases__ if issubclass(base, BaseException)]
            return found
        data = plain_part(value)
        if data is not None:
            found["data"] = encode(data, self.handle, 1)
        found["callable"] = callable(value)
        found["of"] = self.handle(type(value))["handle"] if _is_of_program(type(value)) else None
        return found

    def _base(self, base: type) -> Any:
        return self.handle(base) if _is_of_program(base) else base.__name__

    def encoded(self, value: object) -> Any:
        return encode(value, self.handle)

    def decoded(self, value: Any) -> Any:
        return decode(value, lambda found: self._objects[found["handle"]])


def _is_of_program(kind: type) -> bool:
    return kind.__module__ in ("solution", "__main__")


def operate(objects: _Objects, name: str, values: list[Any]) -> Any:
    """Return the result of an operation of a test."""
    if name == "call":
        function, arguments, named = values
        return function(*arguments, **named)
    if name == "attribute":
        return getattr(*values)
    if name == "set":
        return setattr(*values)
    if name == "item":
        return values[0][values[1]]
    if name == "set_item":
        values[0][values[1]] = values[2]
        return None
    if name == "delete_item":
        del values[0][values[1]]
        return None
    if name == "contains":
        return values[1] in values[0]
    if name == "isinstance":
        return isinstance(*values)
    if name == "issubclass":
        return issubclass(*values)
    if name == "apply":
        return _applied(*values)
    if name == "names":
        module = values[0]
        return list(getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")]))
    if name == "next":
        return _taken(values[0], values[1])
    if name in ("eq", "ne"):
        return getattr(operator, name)(*values)
    return (_ORDERS.get(name) or _UNARY.get(name) or getattr(operator, name))(*values)


def _applied(module: types.ModuleType, path: str, arguments: list[Any]) -> Any:
    """Call a function, or a method of a new object: "f" or "Solution.f"."""
    function: Any = module
    for name in path.split("."):
        function = getattr(function() if isinstance(function, type) else function, name)
    return function(*arguments)


def _taken(iterator: Iterator[Any], count: int) -> list[Any]:
    """Return up to a number of items, and whether more may follow."""
    items = []
    for _ in range(count):
        try:
            items.append(next(iterator))
        except StopIteration:
            return [items, False]
    return [items, True]


def report(channel: TextIO, number: int, content: dict[str, Any]) -> None:
    channel.write(f"\n{MARK}{dumps([number, content])}\n")
    channel.flush()


def described(objects: _Objects, error: BaseException) -> dict[str, Any]:
    """Return the JSON of an exception of the program."""
    kind = type(error)
    try:
        text = str(error)
    except Exception:
        text = ""
    try:
        arguments = objects.encoded(list(error.args))
    except Exception:
        arguments = [text]
    found = {"name": kind.__name__, "text": text[:2000], "arguments": arguments}
    if _is_of_program(kind):
        return {**found, "class": objects.handle(kind), "handle": objects.handle(error)}
    return {**found, "builtin": next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")}


def run(source: str, operations: list[Any], setup: str) -> None:
    """Run a program and operations on it, and report them: 0 is the program, operations follow from 1."""
    channel = sys.stdout
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    objects = _Objects(module)
    printed = captured()
    try:
        exec(compile(setup, "setup.py", "exec"), module.__dict__)
        exec(compile(source, "solution.py", "exec"), module.__dict__)
    except BaseException as error:
        report(channel, 0, {"raised": described(objects, error), "printed": printed()})
        return
    report(channel, 0, {"printed": printed()})
    for number, (name, encoded) in enumerate(operations, start=1):
        printed = captured()
        content: dict[str, Any] = {}
        values: list[Any] = []
        try:
            values = objects.decoded(encoded)
            content["value"] = objects.encoded(operate(objects, name, values))
        except BaseException as error:
            content = {"raised": described(objects, error)}
        try:
            if name == "call" and (changed := _changes(objects, encoded[1], values[1])):
                content["changed"] = changed
        except Exception:
            content = {"raised": {"name": "TransferError", "text": "an argument became something that cannot cross"}}
        content["printed"] = printed()
        report(channel, number, content)


def _changes(objects: _Objects, before: list[Any], arguments: list[Any]) -> dict[str, Any]:
    """Return the arguments that a call changed, by index."""
    found = {}
    for index, (old, argument) in enumerate(zip(before, arguments, strict=True)):
        if isinstance(argument, list | dict | set | bytearray | deque) and (new := objects.encoded(argument)) != old:
            found[str(index)] = new
    return found


def captured() -> Callable[[], str]:
    """Replace standard output, and return a function that returns what was printed."""
    buffer = io.BytesIO()
    sys.stdout = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogatepass", write_through=True)
    return lambda: buffer.getvalue().decode("utf-8", "replace")[:100_000]


def main() -> None:
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(10_000)
    given = json.loads(sys.stdin.read())
    sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
    run(given["program"], given["operations"], given["setup"])
