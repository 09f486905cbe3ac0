"""Suites from the values of rows, by the shape of the value: inputs with outputs, records, assertions, or a module."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.components.programs.forms import InvalidTestsError, parse_tests, unpack_suite, unreadable
from torl.components.programs.suites import (
    PRELUDE,
    CallTest,
    CodeTest,
    InputTest,
    Test,
    TestSuite,
    assertion_tests,
    defined_classes,
    defined_names,
    module_tests,
)

_CALLS = ("functional", "function_call", "call_based")
"""Kinds of records that call a function: LiveCodeBench's and PrimeIntellect's."""
_KINDS = ("type", "testtype")
_STANDARD_MODULES = (
    "math",
    "re",
    "collections",
    "itertools",
    "functools",
    "heapq",
    "datetime",
    "copy",
    "random",
    "sys",
)
"""Modules that published assertions use, and that no program may define for them."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Further facts of a row about its tests.

    Attributes:
        function: Name of the function that the tests call, or None.
        starter: Code that the program begins with.
        question: Text of the question.
        solutions: Programs that solve the problem.
    """

    function: str | None = None
    starter: str = ""
    question: str = ""
    solutions: tuple[str, ...] = ()

    @property
    def solution(self) -> str:
        """The first solution, or the starter code."""
        return self.solutions[0] if self.solutions else self.starter

    def path(self, function: str) -> str:
        """Return the path of a function: a method of the class `Solution` if the problem asks for one."""
        shown = next(filter(None, (self.starter, "".join(self.solutions[:1]), self.question)), "")
        return f"Solution.{function}" if "class Solution" in shown else function


def read_suite(value: Any, hints: Hints) -> TestSuite:
    """Return the suite of a value whose shape tells what it is.

    Known shapes: the JSON of `pack_suite`; an object with lists of inputs and outputs, and maybe `fn_name` (APPS, TACO,
    PRIME); a list of objects with an input, an output, a type and maybe a function (DeepCoder, LiveCodeBench); a list
    of assertions (AceCode, MBPP); the text of a Python module with tests. Also as JSON in a text.

    Raises:
        InvalidTestsError: The value has no tests, or no known shape.
    """
    if isinstance(value, str):
        text = value.strip()
        value = parse_tests(text) if text[:1] in ("[", "{") else text
    if not value:
        raise InvalidTestsError("no_tests", "the row has no tests")
    if isinstance(value, str):
        return TestSuite(code_tests([value], hints))
    if isinstance(value, Mapping):
        return _suite_of_object(value, hints)
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        return _with_prelude(read_records(value, hints))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return TestSuite(code_tests(value, hints))
    raise unreadable("the tests have no known shape: neither inputs and outputs nor assertions")


def _suite_of_object(value: Mapping[str, Any], hints: Hints) -> TestSuite:
    if "tests" in value:
        return unpack_suite(value)
    names = next((pair for pair in (("inputs", "outputs"), ("input", "output")) if pair[0] in value), None)
    if names is None:
        raise unreadable(f"the tests are an object without inputs; its keys are {', '.join(map(str, value))}")
    inputs, outputs = (value.get(name) or [] for name in names)
    function = value.get("fn_name") or hints.function
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise unreadable("the tests have not as many outputs as inputs")
    if not function:
        return TestSuite(tuple(map(input_test, inputs, outputs)))
    return _with_prelude(call_tests(str(function), list(map(_arguments, inputs)), outputs, hints))


def read_records(records: Sequence[Mapping[str, Any]], hints: Hints) -> tuple[Test, ...]:
    """Return the tests of records with an input, an output, and maybe a type and the name of a function."""
    tests: list[Test] = []
    calls: dict[str, list[tuple[int, list[Any], Any]]] = {}
    for record in records:
        if "input" not in record or "output" not in record:
            raise unreadable(f"a test has no input or no output; its keys are {', '.join(map(str, record))}")
        kind = next((record[name] for name in _KINDS if record.get(name)), None)
        more = record.get("metadata")
        named = record.get("fn_name") or (isinstance(more, Mapping) and more.get("func_name")) or hints.function
        if kind not in _CALLS and not (kind is None and named):
            tests.append(input_test(record["input"], record["output"]))
            continue
        if not named:
            raise unreadable("a test calls a function without a name")
        expected = _parsed_line(record["output"]) if kind == "functional" else record["output"]
        wrapped = expected if kind != "functional" else [expected]
        calls.setdefault(str(named), []).append((len(tests), _arguments(record["input"]), wrapped))
        tests.append(InputTest("", ""))  # replaced below, as soon as all results of the function are known
    for function, found in calls.items():
        made = call_tests(function, [each[1] for each in found], [each[2] for each in found], hints)
        for (place, _, _), test in zip(found, made, strict=True):
            tests[place] = test
    return tuple(tests)


def call_tests(function: str, arguments: list[list[Any]], results: list[Any], hints: Hints) -> tuple[CallTest, ...]:
    """Return the tests of a function. Results may each be in a list, as those of Codewars' problems are in APPS."""
    is_wrapped = all(isinstance(each, list) and len(each) == 1 for each in results)
    if is_wrapped and (depth := _depth_of_result(function, hints)) is not None:
        is_wrapped = max(map(_depth, results)) > depth
    path = hints.path(function)
    return tuple(
        CallTest(path, each, result[0] if is_wrapped else result)
        for each, result in zip(arguments, results, strict=True)
    )


def _depth_of_result(function: str, hints: Hints) -> int | None:
    """Return how many lists are around the result of a function by its annotation, or None without one."""
    found = re.search(rf"def\s+{re.escape(function)}\s*\([^)]*\)\s*->\s*([^\n]+):", hints.starter or hints.question)
    return None if found is None else len(re.findall(r"(?i)\blist\b", found[1]))


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _arguments(given: Any) -> list[Any]:
    """Return the arguments of a call: a list of them, or a text with the JSON of one on each line."""
    if isinstance(given, str):
        return [_parsed_line(line) for line in given.split("\n") if line.strip()]
    values = given if isinstance(given, list) else [given]
    return [_with_integer_keys(each) if isinstance(each, dict) else each for each in values]


def _with_integer_keys(value: dict[str, Any]) -> dict[Any, Any]:
    is_number = bool(value) and all(re.fullmatch(r"-?\d+", key) for key in value)
    return {int(key): each for key, each in value.items()} if is_number else value


def _parsed_line(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(f"an argument or a result is not JSON: {text!r:.60}") from error


def input_test(given: Any, printed: Any) -> InputTest:
    """Return the test of an input and an output, each a text, or a list of lines."""
    return InputTest(_text(given), _text(printed))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(map(str, value if isinstance(value, list) else [value]))


def code_tests(codes: Sequence[str], hints: Hints, setup: str = "", modules: Sequence[str] = ()) -> tuple[Test, ...]:
    """Return the tests of assertions, of a function `check`, or of a module with test functions.

    Args:
        codes: Assertions, or the code of one module.
        hints: What else is known of the problem. Its first solution tells which names are the program's.
        setup: Code before the tests.
        modules: Names by which they import the program.

    Raises:
        InvalidTestsError: The code is not Python.
    """
    try:
        trees = [ast.parse(code) for code in codes]
        setup = _with_standard_modules(setup, trees)
        [first, *others] = trees
        if not others and hints.function and "check" in _functions(first):
            return (CodeTest(codes[0], ("check", hints.function), setup, (hints.function,)),)
        if not others and (modules or any(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in first.body)):
            return tuple(module_tests(codes[0], modules or _imported(first), hints.solution, setup))
        return tuple(assertion_tests(codes, hints.solution, setup, defined_classes(hints.solution)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise unreadable(f"the tests are not Python: {error}") from error


def _functions(tree: ast.Module) -> set[str]:
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def _imported(tree: ast.Module) -> tuple[str, ...]:
    """Return the name by which a module imports the program."""
    found = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    return tuple(name for name in ("solution", "main", "your_module") if name in found)


def _with_standard_modules(setup: str, trees: Sequence[ast.Module]) -> str:
    loaded = {each.id for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Name)}
    known = defined_names(ast.parse(setup)).union(*map(defined_names, trees))
    lines = [f"import {name}" for name in _STANDARD_MODULES if name in loaded - known]
    return "\n".join(filter(None, (*lines, setup)))


def _with_prelude(tests: tuple[Test, ...]) -> TestSuite:
    return TestSuite(tests, prelude=PRELUDE if any(isinstance(each, CallTest) for each in tests) else "")
