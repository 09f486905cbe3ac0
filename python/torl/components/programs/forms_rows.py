"""Problems with tests from the rows of public sets, each by the columns that its authors chose."""

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torl.components.programs.forms import InvalidTestsError, require_consistent, unreadable, with_limits
from torl.components.programs.forms_fields import (
    as_object,
    is_importable,
    packed_records,
    python_solutions,
    read_limit,
    required_text,
    text_or_empty,
    with_starter,
    without_function,
)
from torl.components.programs.forms_values import (
    Hints,
    code_tests,
    input_test,
    read_records,
    read_suite,
)
from torl.components.programs.suites import PRELUDE, CodeTest, Test, TestSuite

_PYTHON3 = 3  # CodeContests' number of the language
_OTHER_LANGUAGES = frozenset(  # a column "language" may also name the language of the text
    (
        *("c", "c++", "cpp", "c#", "csharp", "java", "javascript", "js", "typescript", "ts", "go", "golang", "rust"),
        *("php", "ruby", "kotlin", "swift", "scala", "haskell", "perl", "lua", "r", "sql", "bash", "sh", "shell"),
    )
)


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """A problem with tests, read from a row.

    Attributes:
        suite: Its tests.
        question: Its question, with the code or the name that a program must have.
        solutions: Programs that solve it by its authors, at most `MAX_SOLUTIONS`.
    """

    suite: TestSuite
    question: str
    solutions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowForm:
    """A reader of rows, and the columns that it reads, except for the question and the id."""

    columns: tuple[str, ...]
    read: Callable[[Mapping[str, Any], str, Any], ProgramRow]
    """Function of the row, the question, and the value of the column of tests, if the layout names one."""


def read_program(form: str, row: Mapping[str, Any], question: str, value: Any = None) -> ProgramRow:
    """Return the problem of a row.

    Args:
        form: Name in `ROW_FORMS`.
        row: The row, with numbers instead of number literals.
        question: Text of the question.
        value: Value of the column of tests; only for the form "values".

    Raises:
        InvalidTestsError: The row has no readable tests, tests that contradict each other, or another language.
    """
    language = next((row[name] for name in ("language", "lang") if isinstance(row.get(name), str)), "")
    if language.lower() in _OTHER_LANGUAGES:
        raise InvalidTestsError("other_language", f"the problem asks for {language}, not for Python")
    found = ROW_FORMS[form].read(row, question, value)
    return replace(found, suite=require_consistent(found.suite))


def _read_values(row: Mapping[str, Any], question: str, value: Any) -> ProgramRow:
    solutions = python_solutions(row.get("solutions"), row.get("solution"))
    more = as_object(row.get("metadata"))
    function = next((row[name] for name in ("fn_name", "entry_point", "func_name") if row.get(name)), None)
    starter = text_or_empty(row.get("starter_code"))
    hints = Hints(function or more.get("func_name"), starter, question, solutions)
    memory = read_limit(row.get("memory_limit"))
    suite = with_limits(
        read_suite(value, hints), read_limit(row.get("time_limit")), None if memory is None else max(1, round(memory))
    )
    return ProgramRow(suite, with_starter(question, starter, suite), solutions)


def _read_code_contests(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    if row.get("input_file") or row.get("output_file"):
        raise InvalidTestsError("reads_files", "the problem reads or writes a file instead of standard input")
    groups = [as_object(row.get(name)) for name in ("public_tests", "private_tests", "generated_tests")]
    pairs = [(each.get("input") or [], each.get("output") or []) for each in groups]
    if any(len(inputs) != len(outputs) for inputs, outputs in pairs):
        raise unreadable("the tests have not as many outputs as inputs")
    tests = tuple(test for inputs, outputs in pairs for test in map(input_test, inputs, outputs))
    limit = as_object(row.get("time_limit"))
    seconds = limit.get("seconds", 0) + limit.get("nanos", 0) * 1e-9
    memory = row.get("memory_limit_bytes")
    found = as_object(row.get("solutions"))
    languages = found.get("language") or []
    solutions = [
        each for number, each in zip(languages, found.get("solution") or [], strict=False) if number == _PYTHON3
    ]
    suite = with_limits(TestSuite(tests, len(pairs[0][0])), seconds or None, (memory and int(memory) >> 20) or None)
    return ProgramRow(suite, question, python_solutions(solutions))


def _read_kodcode(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    solutions = python_solutions(row.get("solution"))
    tests = code_tests([required_text(row, "test")], Hints(solutions=solutions), modules=("solution",))
    declared = [as_object(each).get("function_declaration") for each in row.get("test_info") or []]
    unseen = [each for each in declared if each and each.partition("(")[0].split()[-1] not in question]
    return ProgramRow(TestSuite(tests), with_starter(question, "\n".join(unseen)), solutions)


def _read_live_code_bench(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    starter, function = text_or_empty(row.get("starter_code")), as_object(row.get("metadata")).get("func_name")
    hints = Hints(function, starter, question)
    shown, hidden = (packed_records(row.get(name)) for name in ("public_test_cases", "private_test_cases"))
    tests = read_records([*shown, *hidden], hints)
    suite = TestSuite(tests, len(shown), prelude=PRELUDE if starter else "")
    return ProgramRow(suite, with_starter(question, starter))


def _read_human_eval(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    entry, prompt = required_text(row, "entry_point"), required_text(row, "prompt")
    helpers = without_function(f"{prompt}    pass\n", entry)
    tests = code_tests([required_text(row, "test")], Hints(entry), helpers)
    return ProgramRow(
        TestSuite(tests, prelude=helpers),
        question,
        python_solutions(prompt + text_or_empty(row.get("canonical_solution"))),
    )


def _read_evalplus(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    """Read evalplus' own file, which has inputs without results: the canonical solution computes them.

    It runs in the guest of the tests, which the program cannot reach, whenever a program is judged.
    """
    entry, prompt = required_text(row, "entry_point"), required_text(row, "prompt")
    inputs = [*(row.get("base_input") or []), *(row.get("plus_input") or [])]
    if not inputs:
        raise InvalidTestsError("no_tests", "the row has no inputs")
    solution = prompt + required_text(row, "canonical_solution")
    helpers = without_function(f"{prompt}    pass\n", entry)
    setup = _REFERENCE.format(solution=solution, entry=entry, inputs=json.dumps(inputs), atol=row.get("atol") or 0)
    test = CodeTest(_CHECK_REFERENCE, ("check", entry), setup, (entry,))
    return ProgramRow(TestSuite((test,), prelude=helpers), question, (solution,))


_REFERENCE = """import copy, json, math
_space = {{}}
exec({solution!r}, _space)
_reference = _space[{entry!r}]
_inputs = json.loads({inputs!r})
_tolerance = {atol!r} or 1e-6
"""
_CHECK_REFERENCE = """
def _equal(result, expected):
    if isinstance(expected, float):
        return result == expected or math.isclose(result, expected, rel_tol=1e-7, abs_tol=_tolerance)
    if isinstance(expected, (list, tuple)) and expected:
        return type(result) is type(expected) and len(result) == len(expected) and all(map(_equal, result, expected))
    return result == expected

def check(candidate):
    results = [candidate(*copy.deepcopy(each)) for each in _inputs]
    for arguments, result in zip(_inputs, results):
        assert _equal(result, _reference(*copy.deepcopy(arguments))), arguments
"""


def _read_mbpp(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    solutions = python_solutions(row.get("code"))
    shown = list(row.get("test_list") or [])
    setup = "\n".join(filter(None, (*(row.get("test_imports") or []), text_or_empty(row.get("test_setup_code")))))
    hints, more = Hints(solutions=solutions), list(row.get("challenge_test_list") or [])
    if not shown:
        raise InvalidTestsError("no_tests", "the row has no tests")
    tests: tuple[Test, ...] = code_tests([*shown, *more], hints, setup)
    if row.get("test"):  # MBPP+
        tests += code_tests([row["test"]], hints, setup)
    asked = f"{question.rstrip()}\n\nYour code should pass this test:\n\n```python\n{shown[0].strip()}\n```"
    return ProgramRow(TestSuite(tests, public=1), asked, solutions)


def _read_big_code_bench(row: Mapping[str, Any], question: str, _: Any) -> ProgramRow:
    libraries = row.get("libs") or []
    if isinstance(libraries, str):
        try:
            libraries = ast.literal_eval(libraries)
        except (ValueError, SyntaxError) as error:
            raise unreadable(f"'libs' is not a list of names: {libraries!r:.60}") from error
    for name in libraries:
        if not is_importable(name):
            raise InvalidTestsError(f"needs_{name}", f"the sandbox has no package {name}")
    prompt = required_text(row, "code_prompt")
    solutions = python_solutions(prompt + text_or_empty(row.get("canonical_solution")))
    helpers = without_function(f"{prompt.rstrip()}\n    pass\n", required_text(row, "entry_point"))
    tests = code_tests(
        [required_text(row, "test")], Hints(starter=prompt, solutions=solutions), helpers, modules=("solution",)
    )
    return ProgramRow(TestSuite(tests, prelude=helpers), question, solutions)


_READ = (
    "starter_code",
    "fn_name",
    "entry_point",
    "func_name",
    "metadata",
    "time_limit",
    "memory_limit",
    "language",
    "lang",
)
ROW_FORMS: Mapping[str, RowForm] = MappingProxyType(
    {
        "values": RowForm((*_READ, "solutions", "solution"), _read_values),
        "code_contests": RowForm(
            (
                *("public_tests", "private_tests", "generated_tests", "time_limit", "memory_limit_bytes"),
                *("solutions", "input_file", "output_file"),
            ),
            _read_code_contests,
        ),
        "kodcode": RowForm(("test", "solution", "test_info"), _read_kodcode),
        "live_code_bench": RowForm(
            ("public_test_cases", "private_test_cases", "metadata", "starter_code"), _read_live_code_bench
        ),
        "human_eval": RowForm(("prompt", "test", "entry_point", "canonical_solution"), _read_human_eval),
        "evalplus": RowForm(
            ("prompt", "entry_point", "canonical_solution", "base_input", "plus_input", "atol"), _read_evalplus
        ),
        "mbpp": RowForm(
            ("code", "test_list", "test_imports", "test_setup_code", "challenge_test_list", "test"), _read_mbpp
        ),
        "big_code_bench": RowForm(
            ("code_prompt", "canonical_solution", "test", "entry_point", "libs"), _read_big_code_bench
        ),
    }
)
"""Forms of rows by name. The form "values" reads one column, in any shape that `read_suite` knows."""
