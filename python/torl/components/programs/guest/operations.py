"""Operations on objects of the other side, by name."""

import asyncio
import builtins
import copy
import math
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any


def _call(function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
    return function(*arguments, **named)


def _apply(module: types.ModuleType, path: str, arguments: list[Any]) -> Any:
    """Call a function, or a method of a new object: "f" or "Solution.f"."""
    function: Any = module
    for name in path.split("."):
        function = getattr(function() if isinstance(function, type) else function, name)
    return function(*arguments)


_pending: dict[int, BaseException] = {}  # by the id of an iterator, which the side keeps


def _next(iterator: Iterator[Any], count: int) -> list[Any]:
    """Return up to a number of items, and whether more may follow: items, or the exception that ended it."""
    if id(iterator) in _pending:
        raise _pending.pop(id(iterator))
    items = []
    for _ in range(count):
        try:
            items.append(next(iterator))
        except StopIteration:
            return [items, False]
        except BaseException as error:
            if not items:
                raise
            _pending[id(iterator)] = error
            break
    return [items, True]


def _exit(context: Any, error: BaseException | None) -> Any:
    return type(context).__exit__(context, error and type(error), error, error and error.__traceback__)


def _await(awaitable: Any) -> Any:
    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def _aexit(context: Any, error: BaseException | None) -> Any:
    return _await(type(context).__aexit__(context, error and type(error), error, error and error.__traceback__))


CHANGING = (list, dict, set, deque, bytearray, OrderedDict, defaultdict, Counter)
"""Types of data that can change."""


def containers(value: Any) -> Iterator[Any]:
    """Yield the containers in data that can change, outer ones first."""
    if type(value) in CHANGING:
        yield value
    if type(value) in (list, tuple, deque):
        for each in value:
            yield from containers(each)
    elif type(value) in CHANGING and isinstance(value, dict):
        for each in value.values():
            yield from containers(each)


def containers_of_call(values: list[Any]) -> Iterator[Any]:
    """Yield the containers in the arguments of the operation "call"."""
    _, arguments, named = values
    for each in (*arguments, *named.values()):
        yield from containers(each)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "track": lambda: None,  # the numbers of containers are reported from here on
    "apply": _apply,
    "next": _next,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit,
    "await": _await,
    "aenter": lambda context: _await(type(context).__aenter__(context)),
    "aexit": _aexit,
    "aiter": aiter,
    "anext": lambda iterator: _await(anext(iterator)),
    "attribute": getattr,
    "set": setattr,
    "delete": delattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "delete_item": operator.delitem,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
_BUILTIN = (
    "abs bool bytes callable dir divmod float format hash int isinstance issubclass iter len repr reversed round str"
)
_OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift neg pos invert index "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift eq ne lt le gt ge contains"
)
_OPERATIONS |= {name: getattr(builtins, name) for name in _BUILTIN.split()}
_OPERATIONS |= {name: getattr(operator, name) for name in _OPERATORS.split()}


def operate(name: str, values: list[Any]) -> Any:
    """Return the result of an operation."""
    return _OPERATIONS[name](*values)
