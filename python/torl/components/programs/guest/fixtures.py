"""Run test functions and methods as pytest does: with parameters, fixtures, and what runs before and after."""

import asyncio
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class _Captured:
    """The fixture `capsys`."""

    def __init__(self) -> None:
        self._stream: Any = sys.stdout
        self._read = 0

    def readouterr(self) -> Any:
        text = self._stream.getvalue()[self._read :]
        self._read += len(text)
        return types.SimpleNamespace(out=text, err="")


class _Run:
    """One run of a test.

    Args:
        fixtures: Fixtures by name.
        given: Parameters of the test.
        parameters: Parameters of fixtures, by the name of the fixture.
        obstruct: Returns the exception that says why the test cannot be judged.
    """

    def __init__(
        self,
        fixtures: dict[str, Any],
        given: dict[str, Any],
        parameters: dict[str, Any],
        obstruct: Callable[[str], BaseException],
    ) -> None:
        self._fixtures = fixtures
        self._parameters = parameters
        self._obstruct = obstruct
        self._values = dict(given)
        self.ends: list[Callable[[], object]] = []

    def value(self, name: str) -> Any:
        """Return a parameter, or the value of a fixture, which is made once."""
        if name not in self._values:
            self._values[name] = self._made(name)
        return self._values[name]

    def _made(self, name: str) -> Any:
        if name == "capsys":
            return _Captured()
        if name not in self._fixtures:
            raise self._obstruct(f"the test needs the fixture {name!r}, which the judge does not have")
        function = self._fixtures[name]
        request = types.SimpleNamespace(
            param=self._parameters.get(name), getfixturevalue=self.value, addfinalizer=self.ends.append
        )
        value = function(**{each: request if each == "request" else self.value(each) for each in _needed(function)})
        if inspect.isgenerator(value):
            self.ends.append(lambda: next(value, None))
            return next(value)
        return value

    def call(self, function: Any) -> None:
        """Call a test with its fixtures, and wait for it if it is asynchronous."""
        result = function(**{name: self.value(name) for name in _needed(function)})
        if inspect.iscoroutine(result):
            asyncio.run(result)


def run_test(path: str, space: Mapping[str, Any], obstruct: Callable[[str], BaseException]) -> None:
    """Run a test, "test_f" or "TestClass.test_f", once for each combination of parameters, of fixtures too."""
    *owners, name = path.split(".")
    owner: Any = None
    for each in owners:
        owner = space[each] if owner is None else getattr(owner, each)
    members = _members(space, owner)
    marks = [*_listed(space.get("pytestmark")), *_listed(getattr(owner, "pytestmark", None))]
    marks += getattr(members[name], "pytestmark", [])
    for mark in marks:
        if mark.name in ("skip", "xfail") or (mark.name == "skipif" and mark.given and mark.given[0]):
            raise obstruct(f"the test is marked {mark.name}")
    fixtures = _fixtures(members)
    used = [key for key, each in fixtures.items() if each.is_autouse]
    used += [each for mark in marks if mark.name == "usefixtures" for each in mark.given]
    rows = [mark.rows() for mark in marks if mark.name == "parametrize"]
    if [] in rows:
        raise obstruct("the test has no parameters")
    given_names = {key for row in rows for key in row[:1] and row[0]}
    reached = _reached([*used, *_needed(members[name])], fixtures, given_names)
    choices = [[{key: value} for value in fixtures[key].parameters] for key in reached if fixtures[key].parameters]
    for *given, chosen in itertools.product(*rows, [_merged(each) for each in itertools.product(*choices)]):
        members = _members(space, owner)
        run = _Run(_fixtures(members), _merged(given), chosen, obstruct)
        kinds = ("module", "function") if owner is None else ("module", "class", "method")
        try:
            for kind in kinds:
                _call_if_there(members.get(f"setup_{kind}"))
                run.ends.append(functools.partial(_call_if_there, members.get(f"teardown_{kind}")))
            for each in used:
                run.value(each)
            run.call(members[name])
        finally:
            for end in reversed(run.ends):
                end()


def _members(space: Mapping[str, Any], owner: Any) -> dict[str, Any]:
    """Return the names of a module, and of a new instance of a class of tests."""
    instance = None if owner is None else owner()
    names = [] if owner is None else [each for each in dir(instance) if not each.startswith("__")]
    return {**space, **{each: getattr(instance, each) for each in names}}


def _fixtures(members: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (types.FunctionType, types.MethodType)
    found = {key: each for key, each in members.items() if type(each) in kinds and hasattr(each, "is_autouse")}
    return {each.fixture_name or key: each for key, each in found.items()}


def _reached(names: list[str], fixtures: Mapping[str, Any], given: set[str]) -> list[str]:
    """Return the names of the fixtures that a test needs, directly or not."""
    found: list[str] = []
    while names:
        name = names.pop(0)
        if name in fixtures and name not in given and name not in found:
            found.append(name)
            names += _needed(fixtures[name])
    return found


def _needed(function: Any) -> list[str]:
    """Return the names of the parameters that have no default."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in variable]


def _call_if_there(function: Any) -> None:
    if function is not None:
        function(*[None] * len(_needed(function)))


def _merged(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for row in rows for key, value in row.items()}


def _listed(marks: Any) -> list[Any]:
    return list(marks) if isinstance(marks, list | tuple) else [] if marks is None else [marks]
