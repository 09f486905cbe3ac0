"""Packages with their own tests, as programs: of each package the part that a test uses, as one module.

The directory of a package is an unpacked source distribution. Only the statements of a test's module and of the package
that a test reaches by names are kept, so that a program has the size of an answer.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, TypeGuard

from judged_programs import Case
from torl.components.programs.suites import TestSuite, module_tests

Definition: TypeAlias = tuple[ast.stmt, set[str], set[str]]
"""A statement, the names that it defines, and the names that it uses."""

WHOLE = "__import__('sys').modules['solution']"  # a module of the package


def package_cases(source: Path, tests: Path, package: str) -> Iterator[Case]:
    """Yield a case for each test function and each `TestCase` of a package.

    Args:
        source: Directory of the package.
        tests: Directory with its tests.
        package: Name of the package.
    """
    files = {file.stem for file in source.rglob("*.py")}
    modules = [each for file in sorted(source.rglob("*.py")) if "test" not in file.name for each in _module(file)]
    theirs = _definitions(part for each in modules for part in _parts(each, package, files))
    for file in sorted(tests.rglob("test_*.py")):
        body = _module(file)
        helpers = _definitions(each for each in body if not _is_unit(each))
        for unit in filter(_is_unit, body):
            kept = [*_reached(helpers, _loaded([unit])), unit]
            used = _loaded(kept)
            needed = [_only(each, used) for each in kept]
            code = _text(needed)
            program = _text(_reached(theirs, _loaded(needed) | _imported(needed, package)))
            names = sorted({name for each in needed for name in _imported_modules(each, package)})
            suite = TestSuite(module_tests(code, names, program))
            yield Case(f"{package}/{file.stem}/{getattr(unit, 'name', '')}", program, suite)


def _module(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text(encoding="utf-8")).body


def _is_unit(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any("TestCase" in ast.unparse(base) for base in node.bases)
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _only(node: ast.stmt, used: set[str]) -> ast.stmt:
    """Return an import of the names that are used alone, and any other statement itself."""
    if not isinstance(node, ast.ImportFrom):
        return node
    names = [each for each in node.names if (each.asname or each.name) in used]
    return ast.ImportFrom(node.module, names or node.names, node.level)


def _parts(node: ast.stmt, package: str, files: set[str]) -> list[ast.stmt]:
    """Return a statement, or the assignments that stand for an import from the package."""
    if not _imports(node, package):
        return [node]
    given = [(each.asname or each.name.partition(".")[0], each.name) for each in node.names]
    values = {new: WHOLE if old.partition(".")[0] in {*files, package} else old for new, old in given}
    return ast.parse("\n".join(f"{new} = {value}" for new, value in values.items() if new not in (value, "*"))).body


def _imports(node: ast.stmt, package: str) -> TypeGuard[ast.ImportFrom | ast.Import]:
    """Whether a statement imports from the package: its parts are one module here."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").partition(".")[0] == package
    return isinstance(node, ast.Import) and node.names[0].name.partition(".")[0] == package


def _imported_modules(node: ast.stmt, package: str) -> Iterator[str]:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
    for name in names:
        parts = name.split(".")
        if parts[0] == package:
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _imported(nodes: Iterable[ast.stmt], package: str) -> set[str]:
    return {
        each.name for node in nodes if isinstance(node, ast.ImportFrom) and _imports(node, package)
        for each in node.names
    }  # fmt: skip


def _loaded(nodes: Iterable[ast.stmt]) -> set[str]:
    """Return the names and the attributes that statements use."""
    nodes = list(nodes)
    found = _names(nodes)
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute):
                found.add(each.attr)
            elif isinstance(each, ast.arg):
                found.add(each.arg)  # a fixture
    return found


def _names(nodes: Iterable[ast.stmt]) -> set[str]:
    walked = (each for node in nodes for each in ast.walk(node))
    return {each.id for each in walked if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(each.asname or each.name).partition(".")[0] for each in node.names}
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    inner = [each for field in ("body", "orelse", "handlers") for each in getattr(node, field, [])]
    return found.union(*map(_defined, inner))


def _definitions(statements: Iterable[ast.stmt]) -> list[Definition]:
    return [(each, _defined(each), _names([each])) for each in statements]


def _reached(definitions: Sequence[Definition], names: set[str]) -> list[ast.stmt]:
    """Return the statements that define the names, or names that those statements use, in their order."""
    kept: set[int] = set()
    while new := [i for i, (_, own, _) in enumerate(definitions) if i not in kept and own & names]:
        kept.update(new)
        names = names.union(*(definitions[i][2] for i in new))
    return [definitions[i][0] for i in sorted(kept)]


def _text(statements: Sequence[ast.stmt]) -> str:
    texts = ["from __future__ import annotations", *map(ast.unparse, statements)]
    return "\n".join(dict.fromkeys(texts)) + "\n"
