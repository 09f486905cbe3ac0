"""Run a test of a problem with the known results of its operations on the program."""

import functools
import io
import json
import random
import sys
import types
import unittest
from typing import Any

from torl.components.programs.guest.fixtures import run_test
from torl.components.programs.guest.identity import install
from torl.components.programs.guest.play import Play
from torl.components.programs.guest.transfer import MARK, dumps
from torl.components.programs.guest.unknown import Unknown


class _Solution(types.ModuleType):
    """The module of the program, for tests that import it."""

    __all__ = ()  # `import *` would replace names of the test, or builtins; what it uses is there by its name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.play.attribute(name)

    def __setattr__(self, name: str, value: object) -> None:
        self.play.do("set", [self.play.proxy({"mine": 0}), name, value])

    def __delattr__(self, name: str) -> None:
        self.play.do("delete", [self.play.proxy({"mine": 0}), name])


def run(play: Play, given: dict[str, Any]) -> None:
    """Run a test.

    Raises:
        AssertionError: The test failed.
    """
    solution = _Solution("solution")
    solution.__dict__["play"] = play
    for name in given["modules"]:
        sys.modules[name] = solution
    module = sys.modules["tests"] = types.ModuleType("tests")
    space = module.__dict__
    space["__file__"] = "tests.py"
    install(space)
    exec(compile(given["setup"], "setup.py", "exec"), space)
    for name in given["names"]:
        try:
            space[name] = getattr(solution, name)
        except AttributeError:
            continue  # the test says which name is missing
    exec(compile(play.tree, "tests.py", "exec"), space)
    kind, *place = given["unit"]
    path = ".".join(place)
    if kind == "check":
        space["check"](space[path])
    elif kind == "function" or (kind == "method" and not _is_case(owner := _found(space, place[0]))):
        run_test(path, space, play.obstruct)
    elif kind == "method":
        _run_case(owner, place[1], play)


def _found(space: dict[str, Any], path: str) -> Any:
    first, *others = path.split(".")
    return functools.reduce(getattr, others, space[first])


def _is_case(owner: Any) -> bool:
    return isinstance(owner, type) and issubclass(owner, unittest.TestCase)


def _run_case(owner: Any, name: str, play: Play) -> None:
    if any(getattr(each, "__unittest_expecting_failure__", False) for each in (owner, getattr(owner, name))):
        raise play.obstruct("the test is expected to fail")
    result = unittest.TestResult()
    unittest.TestSuite([owner(name)]).run(result)
    for _, text in result.skipped:
        raise play.obstruct(f"the test skips itself: {text}")
    for _, text in (*result.errors, *result.failures):
        raise AssertionError(text)
    if not result.wasSuccessful() or result.testsRun != 1:
        raise AssertionError("the test did not run to its end")


def main() -> None:
    """Run a pass of each test, and print their results as JSON."""
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(10_000)
    tests = json.loads(sys.stdin.read())["tests"]
    channel = sys.stdout
    played = [_played(each) for each in tests]
    channel.write(f"\n{MARK}{dumps(played)}\n")
    channel.flush()


def _played(given: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a pass of a test."""
    random.seed(0)
    play = Play(given["known"], given["classes"])
    setattr(sys.modules["pytest"], "_obstruct", play.obstruct)  # noqa: B010 (mypy knows another pytest)
    Unknown.operations = 0
    sys.stdout = io.StringIO()
    ended, message, own = "passed", "", True
    try:
        play.read(given["code"], given["modules"])
        run(play, given)
    except BaseException as error:
        ended = "wrong" if isinstance(error, AssertionError) else "exception"
        own = not any(error is raised or error.__context__ is raised for raised in play.raised)
        message = f"{type(error).__name__}: {error}"[-2000:]
    if play.failure:
        ended, message, own = "wrong", play.failure, True
    counted = ("messages", "unknown", "suspended", "limit", "obstacle")
    return {name: getattr(play, name) for name in counted} | {"ended": ended, "message": message, "own": own}
