"""The tests in a module, and the names of the program that code uses."""

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence


def test_units(tree: ast.Module) -> list[tuple[str, ...]]:
    """Return the unit of each test that pytest would collect: functions, then methods of classes."""
    body = list(_statements(tree.body))
    units: list[tuple[str, ...]] = [("function", name) for name in _test_names(body)]
    return [*units, *_class_units(body, "", {})]


test_units.__test__ = False  # type: ignore[attr-defined]  # no test of pytest


def program_names(code: str, setup: str, solution: str) -> tuple[str, ...]:
    """Return the names that code loads from its module, that neither it nor its setup defines: the program's.

    Raises:
        SyntaxError: The code is not Python.
    """
    loaded, own = _module_names(symtable.symtable(code, "tests.py", "exec"))
    own |= _module_names(symtable.symtable(setup, "setup.py", "exec"))[1]
    try:
        theirs = _module_names(symtable.symtable(solution, "solution.py", "exec"))[1]
    except (SyntaxError, ValueError):
        theirs = set()
    return tuple(sorted(name for name in loaded - own if name in theirs or not hasattr(builtins, name)))


def _module_names(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Return the names of a module that it loads, and that it sets. Names of its functions are not the module's."""
    is_module = table.get_type() == "module"
    symbols = [each for each in table.get_symbols() if is_module or each.is_global()]
    loaded = {each.get_name() for each in symbols if each.is_referenced()}
    own = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    for child in table.get_children():
        more_loaded, more_own = _module_names(child)
        loaded |= more_loaded
        own |= more_own
    return loaded, own


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for each in body:
        yield each
        if isinstance(each, ast.If | ast.Try | ast.With):
            yield from _statements(each.body)


def _class_units(body: Sequence[ast.stmt], outer: str, known: dict[str, ast.ClassDef]) -> Iterator[tuple[str, ...]]:
    own = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
    classes = known | own
    for name, each in own.items():
        methods = dict.fromkeys(_methods(each, classes))
        if _is_case(each, classes):
            names = [method for method in methods if method != "runTest"] or list(methods)
        elif name.startswith("Test") and "__init__" not in _functions(each.body):
            names = [method for method in methods if method != "runTest"]
            yield from _class_units(each.body, f"{outer}{name}.", classes)
        else:
            continue
        yield from (("method", outer + name, method) for method in names)


def _is_case(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    return any("TestCase" in ast.unparse(base) for base in node.bases) or any(
        _is_case(base, classes) for base in _bases(node, classes)
    )


def _bases(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    names = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return [classes[name] for name in names if name in classes and classes[name] is not node]


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    yield from _test_names(node.body)
    if "runTest" in _functions(node.body):
        yield "runTest"
    for base in _bases(node, classes):
        yield from _methods(base, classes)


def _functions(body: Sequence[ast.stmt]) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def _test_names(body: Sequence[ast.stmt]) -> list[str]:
    return [
        name
        for name, function in _functions(body).items()
        if name.startswith("test") and not any("fixture" in ast.unparse(each) for each in function.decorator_list)
    ]
