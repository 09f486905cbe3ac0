"""The plain-JSON form of suites, and suites from the values of rows in the shapes of public sets."""

import base64
import json
import math
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.base.errors import DataError
from torl.components.data import load_problems
from torl.components.data.problems import load_file, make_layout
from torl.components.data.public_sets import find_problem_file
from torl.components.programs import (
    CallTest,
    CodeTest,
    InputTest,
    InvalidTestsError,
    TestSuite,
    pack_suite,
    unpack_suite,
)
from torl.components.programs.forms import keep_largest
from torl.components.programs.forms_rows import ROW_FORMS, read_program
from torl.components.programs.forms_values import Hints, read_suite
from torl.components.programs.suites import PRELUDE

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEYS = st.one_of(st.none(), st.booleans(), st.integers(), st.just(-(1 << 2400)), TEXTS, st.tuples(st.integers(), TEXTS))
DATA = st.recursive(
    st.one_of(KEYS, st.floats(allow_nan=False), st.binary(max_size=4), st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
    ),
    max_leaves=8,
)
NAMES = st.lists(TEXTS, max_size=2).map(tuple)
UNITS = st.one_of(st.just(("module",)), st.tuples(st.just("check"), TEXTS), st.tuples(st.just("method"), TEXTS, TEXTS))
TESTS = st.one_of(
    st.builds(InputTest, TEXTS, TEXTS),
    st.builds(CallTest, st.sampled_from(("f", "Solution.g")), st.lists(DATA, max_size=3), DATA),
    st.builds(CodeTest, st.sampled_from(("assert f()", "x")), UNITS, TEXTS, NAMES, NAMES, NAMES),
)


@st.composite
def suites(draw: st.DrawFn) -> TestSuite:
    tests = draw(st.lists(TESTS, min_size=1, max_size=6))
    limits = (st.none() | st.floats(0.1, 10), st.none() | st.integers(1, 1 << 20))
    return TestSuite(
        tuple(tests),
        draw(st.integers(0, len(tests))),
        draw(st.none() | TEXTS),
        draw(TEXTS),
        *(draw(each) for each in limits),
    )


def exactly(value: Any) -> Any:
    """Types included: True is not 1, and a tuple is not a list. Sets have no order."""
    if isinstance(value, set):
        return "set", sorted(map(repr, map(exactly, value)))
    if isinstance(value, list | tuple):
        return type(value), [exactly(each) for each in value]
    if isinstance(value, dict):
        return dict, [(exactly(key), exactly(each)) for key, each in value.items()]
    if isinstance(value, TestSuite | CallTest):
        return type(value), [exactly(getattr(value, each.name)) for each in fields(value)]
    return repr(value)


@given(suites())
@settings(deadline=None)
def test_packed_suite_survives_a_file(suite: TestSuite) -> None:
    packed = pack_suite(suite)
    assert unpack_suite(packed) == suite
    for text in (json.dumps(packed), json.dumps(packed, ensure_ascii=False)):
        assert exactly(unpack_suite(text)) == exactly(suite)
    assert exactly(unpack_suite(pack_suite(unpack_suite(packed)))) == exactly(suite)


def test_packed_suite_is_what_is_documented() -> None:
    """Files that exist stay readable only if this does not change."""
    test = CodeTest("def test_a(): ...\ndef test_b(): ...", ("function", "test_a"), names=("f",))
    suite = TestSuite(
        (
            InputTest("1\n", "2\n"),
            InputTest("3\n", "4\n"),
            CallTest("f", [1, (2, math.inf)], {"a": {3}}),
            test,
            CodeTest(test.code, ("function", "test_b"), names=("f",)),
            CodeTest("assert f(1)"),
        ),
        public=1,
        cpu_seconds=2.0,
    )
    assert pack_suite(suite) == {
        "tests": [
            {"inputs": [["1\n", "2\n"], ["3\n", "4\n"]]},
            {"function": "f", "calls": ['[[1,{"tuple":[2,Infinity]}],{"dict":[["a",{"set":[3]}]]}]']},
            {"code": test.code, "units": [["function", "test_a"], ["function", "test_b"]], "names": ["f"]},
            {"code": "assert f(1)"},
        ],
        "public": 1,
        "cpu_seconds": 2.0,
    }


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        ({"tests": [], "timeout": 1}, "unknown key 'timeout'; the keys are tests, public,"),
        ({"public": 1}, "'tests' is missing"),
        ({"tests": [{"inputs": [["1", "2"]], "checker": "x"}]}, r"tests\[0\]: unknown key 'checker'"),
        ({"tests": [{"inputs": [["1"]]}]}, "a list of 2 texts"),
        ({"tests": [{"inputs": [["1", 2]]}]}, "a list of 2 texts"),
        ({"tests": [{"calls": ["[[], 1]"]}]}, "'function' is missing"),
        ({"tests": [{"function": "f", "calls": ['[[{"handle": 0}], 1]']}]}, "a call must be the JSON text"),
        ({"tests": [{"function": "f", "calls": [[[], 1]]}]}, "a call must be the JSON text"),
        ({"tests": [{"stdin": "1"}]}, "one of inputs, calls, code"),
        ({"tests": [{"inputs": [["1", "2"]]}], "public": 2}, "'public' must be a number of the 1 tests"),
        ({"tests": [{"inputs": [["1", "2"]]}], "public": True}, "'public' must be int"),
        ([], "must be an object, got list"),
        ("{", "not valid JSON"),
    ],
)
def test_other_values_are_refused(packed: Any, message: str) -> None:
    with pytest.raises(InvalidTestsError, match=message):
        unpack_suite(packed)


def test_texts_that_no_file_holds_are_refused() -> None:
    with pytest.raises(InvalidTestsError, match="lone surrogate at character 1") as raised:
        pack_suite(TestSuite((InputTest("a\ud800", ""),)))
    assert raised.value.reason == "lone_surrogate"
    with pytest.raises(InvalidTestsError, match="a object is not data"):
        pack_suite(TestSuite((CallTest("f", [object()], 1),)))


def test_largest_inputs_are_kept_in_order_after_the_public_ones() -> None:
    suite = TestSuite(tuple(InputTest("x" * size, str(size)) for size in (1, 5, 2, 9, 3)), public=1)
    assert [test.stdout for test in keep_largest(suite, 3).tests] == ["1", "5", "9"]
    assert keep_largest(suite, 3).public == 1
    assert keep_largest(suite, 5) is keep_largest(suite, None) is suite
    assert [test.stdout for test in keep_largest(TestSuite(suite.tests, public=4), 2).tests] == ["1", "5"]


SOLUTION = "class Solution:\n    def f(self, a: List[int]) -> List[int]: ..."
SHAPES: Mapping[str, tuple[Any, Hints, tuple[Any, ...]]] = {
    "lines": ({"inputs": [["1", "2"]], "outputs": ["3\n"]}, Hints(), (InputTest("1\n2", "3\n"),)),
    "APPS, Codewars": (
        {"fn_name": "f", "inputs": [[1, "a"], [2, "b"]], "outputs": [[[1]], [[2]]]},
        Hints(),
        (CallTest("f", [1, "a"], [1]), CallTest("f", [2, "b"], [2])),
    ),
    "APPS, LeetCode": (
        {"fn_name": "f", "inputs": [[[1]], [[2]]], "outputs": [[1], [2]]},
        Hints(starter=SOLUTION),
        (CallTest("Solution.f", [[1]], [1]), CallTest("Solution.f", [[2]], [2])),
    ),
    "APPS, LeetCode, in lists": (
        {"fn_name": "f", "inputs": [[[1]]], "outputs": [[[1]]]},
        Hints(starter=SOLUTION),
        (CallTest("Solution.f", [[1]], [1]),),
    ),
    "integer keys": (
        {"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [7]},
        Hints(),
        (CallTest("f", [{1: 2}], 7),),
    ),
    "LiveCodeBench": (
        json.dumps([{"input": '[1]\n"a"', "output": "[1]", "testtype": "functional"}]),
        Hints("f", SOLUTION),
        (CallTest("Solution.f", [[1], "a"], [1]),),
    ),
    "PrimeIntellect": (
        [{"type": "function_call", "fn_name": "f", "input": [1, 2], "output": [3]}],
        Hints(),
        (CallTest("f", [1, 2], 3),),
    ),
    "records with and without a function": (
        [{"input": "1\n", "output": "2\n"}, {"input": [1], "output": [[2, 3]], "fn_name": "f"}],
        Hints(),
        (InputTest("1\n", "2\n"), CallTest("f", [1], [2, 3])),
    ),
    "assertions": (
        ["assert f(1) == 2", "assert math.isclose(f(2), 3)"],
        Hints(),
        (
            CodeTest("assert f(1) == 2", setup="import math", names=("f",)),
            CodeTest("assert math.isclose(f(2), 3)", setup="import math", names=("f",)),
        ),
    ),
    "assertions about a class": (
        ["assert Stack().pop() is None"],
        Hints(solutions=("class Stack: ...",)),
        (CodeTest("assert Stack().pop() is None", names=("Stack",), classes=("Stack",)),),
    ),
    "check": (
        "def check(candidate):\n    assert candidate(1) == 2\n",
        Hints("f"),
        (CodeTest("def check(candidate):\n    assert candidate(1) == 2", ("check", "f"), names=("f",)),),
    ),
    "test functions": (
        "from solution import f\ndef test_f():\n    assert f(1) == 2\n",
        Hints(),
        (
            CodeTest(
                "from solution import f\ndef test_f():\n    assert f(1) == 2",
                ("function", "test_f"),
                modules=("solution",),
            ),
        ),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_of_a_value_tells_what_its_tests_are(shape: str) -> None:
    value, hints, expected = SHAPES[shape]
    suite = read_suite(value, hints)
    assert exactly(suite.tests) == exactly(expected)
    assert suite.prelude == (PRELUDE if any(isinstance(each, CallTest) for each in expected) else "")
    if not isinstance(value, str):
        assert read_suite(json.dumps(value), hints) == suite
    assert read_suite(pack_suite(suite), Hints()) == suite


@pytest.mark.parametrize(
    ("row", "value", "reason"),
    [
        ({}, None, "no_tests"),
        ({}, "", "no_tests"),
        ({}, "[]", "no_tests"),
        ({}, {"inputs": [], "outputs": []}, "no_tests"),
        ({}, '{"inputs": ["1"', "tests_not_json"),
        ({}, {"inputs": ["1"], "outputs": []}, "unreadable_tests"),
        ({}, {"stdin": "1"}, "unreadable_tests"),
        ({}, [1, 2], "unreadable_tests"),
        ({}, ["assert f(1) =="], "unreadable_tests"),
        ({}, [{"input": "1", "output": "x", "testtype": "functional", "fn_name": "f"}], "unreadable_tests"),
        ({}, [{"input": "1", "output": "2", "testtype": "functional"}], "unreadable_tests"),
        ({}, {"inputs": ["1", "1"], "outputs": ["2", "3"]}, "contradicting_tests"),
        ({}, {"fn_name": "f", "inputs": [[1], [1]], "outputs": [2, 3]}, "contradicting_tests"),
        ({"language": "cpp"}, {"inputs": ["1"], "outputs": ["2"]}, "other_language"),
    ],
)
def test_row_that_cannot_be_judged_has_a_reason(row: dict[str, Any], value: Any, reason: str) -> None:
    with pytest.raises(InvalidTestsError) as raised:
        read_program("values", row, "Do it.", value)
    assert raised.value.reason == reason


def test_equal_tests_with_equal_outputs_do_not_contradict() -> None:
    value = {"inputs": ["1", "1"], "outputs": ["2.0", "2.0000001\n"]}
    assert len(read_program("values", {"language": "Chinese"}, "Do it.", value).suite.tests) == 2
    checked = {"tests": [{"inputs": [["1", "2"], ["1", "3"]]}], "checker": "pass"}
    assert len(read_program("values", {}, "Do it.", checked).suite.tests) == 2


@pytest.mark.parametrize(
    ("limits", "seconds", "mebibytes"),
    [
        ({"time_limit": "2.5 seconds", "memory_limit": "256.0 megabytes"}, 2.5, 256),
        ({"time_limit": "500 ms", "memory_limit": "1 GB"}, 0.5, 1024),
        ({"time_limit": 3, "memory_limit": 64}, 3.0, 64),
        ({"time_limit": None, "memory_limit": "unlimited"}, None, None),
    ],
)
def test_limits_are_read_in_the_units_of_the_sets(
    limits: dict[str, Any], seconds: float | None, mebibytes: int | None
) -> None:
    suite = read_program("values", limits, "Do it.", {"inputs": ["1"], "outputs": ["2"]}).suite
    assert (suite.cpu_seconds, suite.memory_mib) == (seconds, mebibytes)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(BOMB),)


BOMB = ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_packed_tests_are_read_without_executing_a_pickle(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "BOMB", str(tmp_path / "exploded"))
    text = json.dumps([{"input": "é" * 300, "output": "2", "testtype": "stdin"}])

    def row(value: object) -> dict[str, Any]:
        packed = base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()
        return {"public_test_cases": "[]", "private_test_cases": packed, "metadata": "{}", "starter_code": ""}

    suite = read_program("live_code_bench", row(text), "Do it.").suite
    assert suite.tests == (InputTest("é" * 300, "2"),)
    for value in (Bomb(), [text], (text, Bomb()), {text: text}):
        with pytest.raises(InvalidTestsError, match="private tests") as raised:
            read_program("live_code_bench", row(value), "Do it.")
        assert raised.value.reason == "unreadable_tests"
    assert not (tmp_path / "exploded").exists()
    pickle.loads(pickle.dumps(Bomb(), protocol))
    assert (tmp_path / "exploded").exists()


def test_file_with_a_column_of_tests_needs_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    tests = [
        {"inputs": ["1\n"], "outputs": ["2\n"]},
        json.dumps(["assert f(1) == 2"]),
        {"tests": [{"inputs": [["1", "2"], ["11", "3"], ["1111", "4"]]}], "public": 1},
    ]
    rows = [{"problem": f"Do {n}.", "tests": each, "solution": "print(2)"} for n, each in enumerate(tests)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = load_problems(path)
    assert [problem.answer for problem in problems] == ["", "", ""]
    assert [problem.metadata["solutions"] for problem in problems] == [["print(2)"]] * 3
    assert problems[2].metadata["tests"] == tests[2]
    (_, _, third) = load_file(find_problem_file(str(path), make_layout(max_tests=2)))
    assert third.metadata["tests"] == {"tests": [{"inputs": [["1", "2"], ["1111", "4"]]}], "public": 1}
    renamed = [{"problem": row["problem"], "cases": row["tests"]} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in renamed))
    assert [each.metadata["tests"] for each in load_problems(path, {"tests": "cases"})] == [
        problem.metadata["tests"] for problem in problems
    ]
    path.write_text(json.dumps({"problem": "Add.", "answer": "3", "tests": "two of them"}))
    assert [(each.answer, each.metadata["tests"]) for each in load_problems(path)] == [("3", "two of them")]


def test_every_form_names_the_columns_that_a_selection_of_columns_reads() -> None:
    for name, form in ROW_FORMS.items():
        layout = make_layout({"problem": "question"}, keep=["level"])
        fields = type(layout)(columns=layout.columns, keep=layout.keep, tests=name).fields
        assert fields is not None
        assert fields >= {"question", "level", *form.columns}


def test_rows_in_the_guide_are_read(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "from-data-to-table.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith('{"problem"') and '"tests"' in line]
    (tmp_path / "guide.jsonl").write_text("\n".join(rows))
    suites = [unpack_suite(problem.metadata["tests"]) for problem in load_problems(tmp_path / "guide.jsonl")]
    assert [type(test) for suite in suites for test in suite.tests] == [InputTest, CallTest, CodeTest, CodeTest]


def test_rows_that_cannot_be_judged_never_stop_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tests = [["assert f(1)"], [], "", {"inputs": ["1", "1"], "outputs": ["2", "3"]}]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"problem": "Write f.", "tests": each}) + "\n" for each in tests))
    assert len(load_problems(path)) == 1
    assert "dropped rows that cannot be judged: 2 no tests, 1 contradicting tests" in caplog.text
    with path.open("a") as file:
        file.write(json.dumps({"problem": "Write f.", "tests": {"inputs": ["1"]}}) + "\n")
    with pytest.raises(DataError, match=r"line 5: .*not as many outputs.*1 of 2 rows are invalid: 1 unreadable tests"):
        load_problems(path)
