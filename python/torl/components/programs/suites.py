"""Suites of tests: what a program must do, in the forms that public sets have."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torl.components.programs.units import program_names, test_units


@dataclass(frozen=True, slots=True)
class InputTest:
    """A program reads standard input, and prints.

    Attributes:
        stdin: Standard input.
        stdout: Expected output.
    """

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class CallTest:
    """A function of a program is called.

    Attributes:
        function: Name of the function, or of a class and its method: "Solution.twoSum".
        arguments: Arguments, as plain data.
        expected: Expected result, as plain data.
    """

    function: str
    arguments: Sequence[Any]
    expected: Any


@dataclass(frozen=True, slots=True)
class CodeTest:
    """Code asserts something about a program. It runs where the program cannot reach it.

    Attributes:
        code: Module with the test, without code that calls it.
        unit: What to run after the module: ("module",) nothing more; ("check", NAME) its function `check` with the
            program's function of that name; ("function", NAME) a test function; ("method", CLASS, NAME) a method of a
            `unittest.TestCase`, or of a class of tests of pytest.
        setup: Code before it, such as helpers that the problem gives. The names that it defines are not the program's.
        names: Names of the program that the test uses without an import.
        modules: Names by which it imports the program.
        classes: Names of the classes that the problem asks for. Arithmetic with data of the objects that the test makes
            of them runs in the program, which is then given the data.
    """

    code: str
    unit: tuple[str, ...] = ("module",)
    setup: str = ""
    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


Test: TypeAlias = InputTest | CallTest | CodeTest


@dataclass(frozen=True, slots=True)
class TestSuite:
    """The tests of a problem, with their limits.

    Attributes:
        tests: Tests, in order.
        public: Number of first tests that the question shows.
        checker: Program that judges the output of an `InputTest`, for problems with several right answers. It finds the
            files input.txt, expected.txt and output.txt, and accepts by ending with status 0.
        prelude: Code before the program, such as imports that its signature needs.
        cpu_seconds: CPU time of a test on the judge of the set, or None without a limit.
        memory_mib: Memory of a test on the judge of the set, or None without a limit.
    """

    __test__ = False  # no test of pytest

    tests: tuple[Test, ...]
    public: int = 0
    checker: str | None = None
    prelude: str = ""
    cpu_seconds: float | None = None
    memory_mib: int | None = None


_PRELUDE_MODULES = (
    *("string", "re", "collections", "heapq", "bisect", "copy", "math", "random", "itertools", "functools", "typing"),
    "builtins",  # last: math has another pow
)
PRELUDE = "".join(f"import {name}\nfrom {name} import *\n" for name in _PRELUDE_MODULES)
"""Imports that the judges of sets with signatures, such as LeetCode's, run before a program."""


def assertion_tests(
    assertions: Sequence[str], solution: str, setup: str = "", classes: Sequence[str] = ()
) -> tuple[CodeTest, ...]:
    """Return a test for each piece of code that asserts something.

    Args:
        assertions: Code of each test.
        solution: A program, from which the names are taken that belong to programs; empty for all free names.
        setup: Code before each, such as imports.
        classes: Names of the classes that the problem asks for.

    Raises:
        SyntaxError: A test, or the code before it, is not Python.
    """
    return tuple(
        CodeTest(code, setup=setup, names=program_names(code, setup, solution), classes=tuple(classes))
        for code in assertions
    )


def module_tests(code: str, modules: Sequence[str], solution: str, setup: str = "") -> tuple[CodeTest, ...]:
    """Return the tests of a module with test functions or classes, as pytest collects them.

    Args:
        code: Module.
        modules: Names by which it imports the program.
        solution: A program, from which the names are taken that belong to programs, and the classes.
        setup: Code before it.

    Raises:
        SyntaxError: The module is not Python.
    """
    shared: dict[str, Any] = {
        "setup": setup,
        "names": program_names(code, setup, solution),
        "modules": tuple(modules),
        "classes": defined_classes(solution),
    }
    return tuple(CodeTest(code, unit, **shared) for unit in test_units(ast.parse(code)) or [("module",)])


def defined_classes(code: str) -> tuple[str, ...]:
    """Return the names of the classes that a program defines; none for a program that is not Python."""
    try:
        return tuple(each.name for each in ast.parse(code).body if isinstance(each, ast.ClassDef))
    except (SyntaxError, ValueError):
        return ()


def defined_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines or imports at its top level."""
    found: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            found.add(each.name)
    return found
