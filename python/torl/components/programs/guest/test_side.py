"""Run a test of a problem with the known results of its operations on the program."""

import io
import json
import sys
import types
import unittest
from typing import Any

from torl.components.programs.guest.play import Play
from torl.components.programs.guest.transfer import MARK, dumps


class _Solution(types.ModuleType):
    """The module of the program, for tests that import it."""

    __all__ = ()  # `import *` would replace names of the test, or builtins; what it uses is there by its name
    play: Play

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.play.attribute(name)


def run(play: Play, given: dict[str, Any]) -> None:
    """Run a test.

    Raises:
        AssertionError: The test failed.
    """
    solution = _Solution("solution")
    solution.play = play
    for name in given["modules"]:
        sys.modules[name] = solution
    module = sys.modules["tests"] = types.ModuleType("tests")
    space = module.__dict__
    exec(compile(given["setup"], "setup.py", "exec"), space)
    for name in given["names"]:
        try:
            space[name] = getattr(solution, name)
        except AttributeError:
            continue  # the test says which name is missing
    exec(compile(given["code"], "tests.py", "exec"), space)
    kind, *place = given["unit"]
    if kind == "check":
        space["check"](space[place[0]])
    elif kind == "function":
        sys.modules["pytest"].run_function(space[place[0]], space)
    elif kind == "method":
        result = unittest.TestResult()
        unittest.TestSuite([space[place[0]](place[1])]).run(result)
        for _, text in (*result.errors, *result.failures, *result.skipped):
            raise AssertionError(text)
        if not result.wasSuccessful() or result.testsRun != 1:
            raise AssertionError("the test did not run to its end")


def main() -> None:
    """Run a pass, and print its result as JSON."""
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(10_000)
    given = json.loads(sys.stdin.read())
    play = Play(given["known"], given["classes"], given["code"])
    channel, sys.stdout = sys.stdout, io.StringIO()
    ended, message, own = "passed", "", True
    try:
        run(play, given)
    except BaseException as error:
        ended = "wrong" if isinstance(error, AssertionError) else "exception"
        own = not any(error is raised or error.__context__ is raised for raised in play.raised)
        message = f"{type(error).__name__}: {error}"[-2000:]
    if play.failure and ended == "passed":
        ended, message = "wrong", play.failure
    counted = ("messages", "unknown", "suspended", "limit", "obstacle")
    played = {name: getattr(play, name) for name in counted} | {"ended": ended, "message": message, "own": own}
    channel.write(f"\n{MARK}{dumps(played)}\n")
    channel.flush()
