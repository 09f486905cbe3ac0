"""The plain-JSON form of a suite of tests, which `Problem.metadata["tests"]` and the column `tests` of files hold.

Consecutive tests that share something are a group: {"inputs": [[stdin, stdout], ...]}, {"function", "calls"} or
{"code", "units", ...}. A call is the JSON text of its arguments and its result: numbers of any size, NaN, tuples and
sets keep their value, and a text takes a fraction of the memory of lists.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from torl.base.errors import DataError
from torl.base.inputs import parse_json
from torl.components.programs.guest.transfer import TransferError, decode, dumps, encode
from torl.components.programs.output import equal_output, equal_values
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite

_Types = Mapping[str, type]
_SUITE: _Types = MappingProxyType(
    {"tests": list, "public": int, "checker": str, "prelude": str, "cpu_seconds": float, "memory_mib": int}
)
_CODE: _Types = MappingProxyType(
    {"code": str, "units": list, "setup": str, "names": list, "modules": list, "classes": list}
)
_GROUPS: Mapping[str, _Types] = MappingProxyType(
    {"inputs": {"inputs": list}, "calls": {"function": str, "calls": list}, "code": _CODE}
)
"""Keys of the groups, by the key that tells which a group is."""


_DAMAGES = ("tests_not_json", "unreadable_tests", "lone_surrogate")


class InvalidTestsError(DataError):
    """Tests that are not a suite, or cannot be used.

    Attributes:
        reason: Short name of the reason, by which such rows are counted.
        is_damage: Whether the tests are damaged. Else the row is as its authors meant it, and is of no use here.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.is_damage = reason, reason in _DAMAGES


def pack_suite(suite: TestSuite) -> dict[str, Any]:
    """Return the JSON of a suite.

    Raises:
        InvalidTestsError: A text has a lone surrogate, or an argument or a result is not data.
    """
    packed: dict[str, Any] = {"tests": [_pack_group(list(group)) for _, group in groupby(suite.tests, key=_shared)]}
    for each in fields(TestSuite):
        value = getattr(suite, each.name)
        if each.default is not MISSING and value != each.default:
            packed[each.name] = value
    return packed


def unpack_suite(packed: Any) -> TestSuite:
    """Return the suite of its JSON, or of the text of its JSON.

    Raises:
        InvalidTestsError: The value is not the JSON of a suite, or has unknown keys.
    """
    values = _checked(parse_tests(packed) if isinstance(packed, str) else packed, _SUITE, ("tests",), "tests")
    tests = [test for place, group in enumerate(values.pop("tests")) for test in _unpack_group(group, place)]
    if not 0 <= values.get("public", 0) <= len(tests):
        raise unreadable(f"tests: 'public' must be a number of the {len(tests)} tests, got {values['public']}")
    return TestSuite(tuple(tests), **values)


def keep_largest(suite: TestSuite, max_tests: int | None) -> TestSuite:
    """Return a suite with its public tests, and as many of the others, in their order, as a limit leaves.

    Kept are the tests with the longest inputs, as DeepCoder does, since those are the hardest.
    """
    if max_tests is None or len(suite.tests) <= max_tests:
        return suite
    sizes = {index: input_size(test) for index, test in enumerate(suite.tests) if index >= suite.public}
    largest = sorted(sizes, key=lambda index: (-sizes[index], index))[: max(0, max_tests - suite.public)]
    chosen = [*range(min(suite.public, max_tests)), *sorted(largest)]
    return replace(suite, tests=tuple(suite.tests[index] for index in chosen), public=min(suite.public, len(chosen)))


def require_consistent(suite: TestSuite) -> TestSuite:
    """Return the suite.

    Raises:
        InvalidTestsError: The suite has no tests, or the same input with different outputs.
    """
    if not suite.tests:
        raise InvalidTestsError("no_tests", "the row has no tests")
    outputs: dict[Any, str] = {}
    results: dict[Any, Any] = {}
    for test in suite.tests:
        if isinstance(test, InputTest) and suite.checker is None:
            agrees = equal_output(outputs.setdefault(test.stdin, test.stdout), test.stdout)
        elif isinstance(test, CallTest):
            key = (test.function, repr(test.arguments))
            agrees = equal_values(results.setdefault(key, test.expected), test.expected)
        else:
            continue
        if not agrees:
            raise InvalidTestsError("contradicting_tests", "two tests have the same input and different outputs")
    return suite


def with_limits(suite: TestSuite, seconds: float | None, mebibytes: int | None) -> TestSuite:
    """Return a suite with the limits that a row has; limits of the suite itself come first."""
    return replace(
        suite,
        cpu_seconds=seconds if suite.cpu_seconds is None else suite.cpu_seconds,
        memory_mib=mebibytes if suite.memory_mib is None else suite.memory_mib,
    )


def parse_tests(text: str) -> Any:
    """Return the value of JSON in a text.

    Raises:
        InvalidTestsError: The text is not JSON.
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise InvalidTestsError("tests_not_json", f"the tests are not valid JSON: {error}") from error


def unreadable(message: str) -> InvalidTestsError:
    """Return the error for tests in no known shape."""
    return InvalidTestsError("unreadable_tests", message)


def input_size(test: Test) -> int:
    """Return the length of a test's input in characters, by which tests are ordered by difficulty."""
    match test:
        case InputTest(stdin):
            return len(stdin)
        case CallTest(_, arguments):
            return len(repr(arguments))
        case CodeTest(code):
            return len(code)


def _shared(test: Test) -> tuple[Any, ...]:
    """Return what a test shares with the other tests of its group."""
    match test:
        case InputTest():
            return ("inputs",)
        case CallTest(function):
            return ("calls", function)
        case CodeTest():
            return ("code", replace(test, unit=()))


def _pack_group(tests: Sequence[Any]) -> dict[str, Any]:
    first = tests[0]
    if isinstance(first, InputTest):
        return {"inputs": [[_encodable(test.stdin), _encodable(test.stdout)] for test in tests]}
    if isinstance(first, CallTest):
        return {"function": first.function, "calls": [_pack_call(test) for test in tests]}
    group: dict[str, Any] = {"code": _encodable(first.code)}
    if len(tests) > 1 or first.unit != ("module",):
        group["units"] = [list(test.unit) for test in tests]
    if first.setup:
        group["setup"] = _encodable(first.setup)
    named = {name: list(getattr(first, name)) for name in ("names", "modules", "classes")}
    return group | {name: value for name, value in named.items() if value}


def _pack_call(test: CallTest) -> str:
    values = [list(test.arguments), test.expected]
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        text = dumps(values)  # faster than encoding each value, and equal for lists without tuples
        if "{" not in text and json.loads(text) == values:
            return text
    try:
        return dumps(encode(values, _refuse))
    except TransferError as error:
        raise unreadable(f"tests: {error}") from error


def _refuse(value: object) -> Any:
    raise TransferError(f"a {type(value).__name__} is not data")


def _encodable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"a test has a lone surrogate at character {error.start}"
        raise InvalidTestsError("lone_surrogate", message) from error
    return text


def _unpack_group(group: Any, place: int) -> list[Test]:
    where = f"tests[{place}]"
    kind = next((kind for kind in _GROUPS if isinstance(group, Mapping) and kind in group), None)
    if kind is None:
        raise unreadable(f"{where}: must be an object with one of {', '.join(_GROUPS)}")
    values = _checked(group, _GROUPS[kind], (kind, *(["function"] if kind == "calls" else [])), where)
    if kind == "inputs":
        return [InputTest(*_texts(pair, where, 2)) for pair in values["inputs"]]
    if kind == "calls":
        return [_unpack_call(call, values["function"], where) for call in values["calls"]]
    units = [_texts(unit, where) for unit in values.pop("units", [["module"]])]
    values |= {name: _texts(values.get(name, ()), where) for name in ("names", "modules", "classes")}
    return [CodeTest(unit=unit, **values) for unit in units]


def _unpack_call(call: Any, function: str, where: str) -> CallTest:
    try:
        values = json.loads(call)
        arguments, expected = decode(values, _refuse) if "{" in call else values
        return CallTest(function, list(arguments), expected)
    except (TransferError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise unreadable(
            f"{where}: a call must be the JSON text of its arguments and result, got {call!r:.60}"
        ) from error


def _texts(values: Any, where: str, count: int | None = None) -> tuple[str, ...]:
    is_list = isinstance(values, list | tuple) and all(isinstance(each, str) for each in values)
    if not is_list or (count is not None and len(values) != count):
        raise unreadable(f"{where}: expected a list of {count or ''} texts, got {values!r:.60}".replace("  ", " "))
    return tuple(values)


def _checked(value: Any, types: _Types, required: Sequence[str], where: str) -> dict[str, Any]:
    """Return an object whose keys are known and whose values have their types."""
    if not isinstance(value, Mapping):
        raise unreadable(f"{where}: must be an object, got {type(value).__name__}")
    if unknown := [str(name) for name in value if name not in types]:
        raise unreadable(f"{where}: unknown key {unknown[0]!r}; the keys are {', '.join(types)}")
    if missing := [name for name in required if name not in value]:
        raise unreadable(f"{where}: {missing[0]!r} is missing")
    for name, each in value.items():
        kinds = (int, float) if types[name] is float else (types[name],)
        if isinstance(each, bool) or not isinstance(each, kinds):
            raise unreadable(f"{where}: {name!r} must be {types[name].__name__}, got {each!r:.60}")
    return dict(value)
