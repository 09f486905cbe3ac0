"""Identity and types of objects of the program, in the code of a test.

A proxy is another object than what it stands for, and data are copies. So `is`, `type`, `isinstance`, `issubclass` and
`callable` of a test are functions of this module.
"""

import ast
import builtins
import types
import unittest
import unittest.case
from collections import deque
from collections.abc import Iterator
from typing import Any

from torl.components.programs.guest.operations import CHANGING, containers
from torl.components.programs.guest.proxies import Proxy, data_of, do, number_of
from torl.components.programs.guest.transfer import is_library_class
from torl.components.programs.guest.unknown import Unknown

_NAMES = ("__is__", "__is_not__", "__type_of__")


class _Rewriter(ast.NodeTransformer):
    """Calls the functions of this module, and finds out whether a test compares identities."""

    has_identity = False

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        is_constant = any(isinstance(each, ast.Constant) for each in (node.left, *node.comparators))
        if is_constant or len(node.ops) > 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        self.has_identity = True
        name = _NAMES[0] if isinstance(node.ops[0], ast.Is) else _NAMES[1]
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [node.left, *node.comparators], []), node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
            node.func.id = _NAMES[2]
        return node


def rewritten(tree: ast.Module) -> tuple[ast.Module, bool]:
    """Return a test that uses this module, and whether it compares identities."""
    rewriter = _Rewriter()
    tree = ast.fix_missing_locations(rewriter.visit(tree))
    words = {getattr(node, "attr", None) or getattr(node, "id", None) for node in ast.walk(tree)}
    return tree, rewriter.has_identity or bool(words & {"assertIs", "assertIsNot", "id"})


def interned(value: Any, numbers: Iterator[int], known: dict[int, Any]) -> Any:
    """Return data of the program with the containers that the test already has, by their numbers, in new state."""
    if type(value) is tuple:
        return tuple(interned(each, numbers, known) for each in value)
    if type(value) not in CHANGING:
        return value
    mine = known.setdefault(next(numbers), value)
    if isinstance(value, list | deque):
        content: Any = [interned(each, numbers, known) for each in value]
    elif isinstance(value, dict):
        content = {key: interned(each, numbers, known) for key, each in value.items()}
    else:
        content = value.copy()
    mine.clear()
    (mine.update if isinstance(value, dict | set) else mine.extend)(content)
    return mine


def numbered(values: Any, numbers: list[int], known: dict[int, Any]) -> None:
    """Remember the containers of arguments by their numbers in the program."""
    known.update(zip(numbers, containers(values), strict=False))


def _is(one: object, two: object) -> bool:
    if type(one) is Unknown or type(two) is Unknown:
        return True
    if type(one) is Proxy and type(two) is Proxy:
        return number_of(one) == number_of(two)
    return one is two


def _is_not(one: object, two: object) -> bool:
    return Unknown in (type(one), type(two)) or not _is(one, two)


def _type_of(value: Any) -> Any:
    return value.__class__ if type(value) is Proxy else type(value)


def _isinstance(value: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
    if type(value) is not Proxy or type(kind) is Proxy:
        return builtins.isinstance(value, kind)
    if len(kinds) > 1 or isinstance(kind, tuple):
        return any(_isinstance(value, each) for each in kinds)
    if data_of(value) is not Ellipsis or vars(builtins).get(getattr(kind, "__name__", "")) is kind:
        return builtins.isinstance(value, kind)
    return bool(do(value, "isinstance", value, kind)) if is_library_class(kind) else builtins.isinstance(value, kind)


def _issubclass(one: Any, two: Any) -> bool:
    if type(one) is Proxy and isinstance(two, type):
        return bool(do(one, "issubclass", one, two)) if is_library_class(two) else False
    return builtins.issubclass(one, two)


def _callable(value: Any) -> bool:
    return bool(do(value, "callable", value)) if type(value) is Proxy else builtins.callable(value)


def install(space: dict[str, Any]) -> None:
    """Give the functions to the module of a test, and to its test cases."""
    space |= dict(zip(_NAMES, (_is, _is_not, _type_of), strict=True))
    space |= {"isinstance": _isinstance, "issubclass": _issubclass, "callable": _callable}
    vars(unittest.case)["isinstance"] = _isinstance
    for name, function in (("assertIs", _is), ("assertIsNot", _is_not)):
        setattr(unittest.TestCase, name, _assertion(function))


def _assertion(function: Any) -> Any:
    def assertion(case: unittest.TestCase, first: object, second: object, msg: object = None) -> None:
        if not function(first, second):
            case.fail(f"{msg or 'another identity'}: {first!r}, {second!r}")

    return assertion
