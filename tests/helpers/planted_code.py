"""A mistake in the running code: one piece of a module's text is replaced, and its functions are compiled again."""

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@contextmanager
def planted(module: str, old: str, new: str) -> Iterator[None]:
    """Replace a piece of text, which must occur exactly once, in the functions of a module until the end of the block.

    Functions keep their identity: modules that have imported them run the mistake, too.
    """
    loaded = import_module(module)
    path = Path(str(loaded.__file__))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{module}: {text.count(old)} times: {old}"
    before, after = (_codes(compile(each, str(path), "exec")) for each in (text, text.replace(old, new)))
    changed = {name: code for name, code in after.items() if code != before.get(name)}
    functions = {name: _function(loaded, name) for name in changed}
    assert functions, f"{module}: {old} is in no function"
    originals = {name: function.__code__ for name, function in functions.items()}
    try:
        for name, function in functions.items():
            function.__code__ = changed[name]
        yield
    finally:
        for name, function in functions.items():
            function.__code__ = originals[name]


def _codes(code: CodeType) -> dict[str, CodeType]:
    """The code of each function and method of a module by its qualified name, without functions in functions."""
    found: dict[str, CodeType] = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            is_function = bool(each.co_flags & inspect.CO_OPTIMIZED)
            found |= {each.co_qualname: each} if is_function else _codes(each)
    return found


def _function(module: Any, name: str) -> FunctionType:
    """The function with a qualified name, without its wrappers."""
    found = functools.reduce(inspect.getattr_static, name.split("."), module)
    while not isinstance(found, FunctionType):
        wrapped = ("fget", "__func__", "func", "__wrapped__")
        found = next(each for attribute in wrapped if (each := getattr(found, attribute, None)) is not None)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found
