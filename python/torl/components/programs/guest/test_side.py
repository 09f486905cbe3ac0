"""Beside the tests of a problem: run one of them with the results that its operations on the program had.

The program is in another guest, and its objects are proxies here. An operation whose result is not known yet yields an
`Unknown`, with which the test goes on, so that many operations are found in one pass; or it suspends the test. The
result of a pass counts only if it knew the results of all its operations.
"""

import builtins
import io
import json
import sys
import types
import unittest
from typing import Any

from torl.components.programs.guest.proxies import Proxy, Suspended, Unknown, number_of
from torl.components.programs.guest.transfer import TransferError, decode, dumps, encode

_MAX_UNKNOWN = 5_000


class CannotJudgeError(BaseException):
    """Ends a pass: the test does something that cannot cross to the program, such as passing a function."""


class LimitError(BaseException):
    """Ends a pass: the program reached a limit, or ended, in an operation."""


class Play:
    """One pass of a test.

    Args:
        known: Operations of the pass before, with their replies.
        speculative: Whether to go on after an operation without a known result.
        classes: Names of the classes that the problem asks for.
    """

    def __init__(self, known: list[Any], speculative: bool, classes: list[str]) -> None:
        self.known = known
        self.speculative = speculative
        self.class_names = set(classes)
        self.classes: set[int] = set()
        self.operations: list[Any] = []
        self.unknown = 0
        self.suspended = False
        self.obstacle = ""
        self.limit = ""
        self.raised: list[BaseException] = []
        self._exceptions: dict[int, type[BaseException]] = {}

    def do(self, name: str, values: list[Any]) -> Any:
        """Return the result of an operation on the program."""
        if self.suspended or self.obstacle or self.limit:
            raise Suspended
        try:
            operation = [name, encode(values, self._handle)]
        except TransferError as error:
            self.obstacle = str(error)
            raise CannotJudgeError from None
        index = len(self.operations)
        self.operations.append(operation)
        if index < len(self.known) and self.known[index][0] != operation:
            del self.known[index:]
        if index < len(self.known):
            return self._resolve(self.known[index][1], values)
        self.unknown += 1
        if self.speculative and self.unknown <= _MAX_UNKNOWN:
            return Unknown()
        self.suspended = True
        raise Suspended

    def _handle(self, value: object) -> Any:
        if type(value) is Proxy:
            return {"handle": number_of(value)}
        if type(value) is Unknown:
            self.suspended = True
            raise Suspended
        if isinstance(value, type) and (number := getattr(value, "program_class", None)) is not None:
            return {"handle": number}
        self.obstacle = f"the test passes a {type(value).__name__} to the program"
        raise CannotJudgeError

    def _resolve(self, reply: dict[str, Any], values: list[Any]) -> Any:
        sys.stdout.write(reply.get("printed", ""))
        for index, new in reply.get("changed", {}).items():
            _replace(values[1][int(index)], decode(new, self.object_of))
        if "limit" in reply:
            self.limit = reply["limit"]
            raise LimitError(self.limit)
        if "raised" in reply:
            error = self._exception(reply["raised"])
            self.raised.append(error)
            raise error
        return decode(reply["value"], self.object_of)

    def object_of(self, found: dict[str, Any]) -> Any:
        """Return the object here of an object of the program."""
        if "bases" in found:
            return self._exception_class(found)
        if found.get("class") in self.class_names:
            self.classes.add(found["handle"])
        return Proxy(self, found)

    def _exception_class(self, found: dict[str, Any]) -> type[BaseException]:
        number = found["handle"]
        if number not in self._exceptions:
            bases = [
                getattr(builtins, base) if isinstance(base, str) else self._exception_class(base)
                for base in found["bases"]
            ]
            space = {"program_class": number, "__getattr__": _attribute_of_exception}
            self._exceptions[number] = type(found["class"], tuple(bases), space)
        return self._exceptions[number]

    def _exception(self, found: dict[str, Any]) -> BaseException:
        arguments = decode(found.get("arguments", [found["text"]]), self.object_of)
        if "class" not in found:
            kind = getattr(builtins, found.get("builtin", "RuntimeError"))
            try:
                error: BaseException = kind(*arguments)
            except Exception:
                error = RuntimeError(found["text"])
            return error
        kind = self._exception_class(found["class"])
        error = kind.__new__(kind, *arguments)
        error.args = tuple(arguments)
        error.__dict__["program_object"] = Proxy(self, {"handle": found["handle"]})
        return error


def _attribute_of_exception(error: BaseException, name: str) -> Any:
    if name.startswith("__") or "program_object" not in error.__dict__:
        raise AttributeError(name)
    return getattr(error.__dict__["program_object"], name)


def _replace(old: Any, new: Any) -> None:
    """Give a container that the program changed its new content."""
    if isinstance(old, list | bytearray):
        old[:] = new
    else:
        old.clear()
        (old.extend if hasattr(old, "extend") else old.update)(new)


class _Solution(types.ModuleType):
    """The module of the program, for tests that import it."""

    play: Play

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            names = self.play.do("names", [Proxy(self.play, {"handle": 0})])
            return [] if type(names) is Unknown else names
        if name.startswith("__"):
            raise AttributeError(name)
        return self.play.do("attribute", [Proxy(self.play, {"handle": 0}), name])


def run(play: Play, given: dict[str, Any]) -> str:
    """Run a test, and return "passed", or how it failed."""
    solution = _Solution("solution")
    solution.play = play
    for name in given["modules"]:
        sys.modules[name] = solution
    space: dict[str, Any] = {"__name__": "tests"}
    module = types.ModuleType("tests")
    module.__dict__.update(space)
    sys.modules["tests"] = module
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
        case_class = space[place[0]]
        result = unittest.TestResult()
        unittest.TestSuite([case_class(place[1])]).run(result)
        for _, text in (*result.errors, *result.failures):
            raise AssertionError(text)
    return "passed"


def main() -> str:
    """Run a pass, and return its result as JSON."""
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(10_000)
    given = json.loads(sys.stdin.read())
    play = Play(given["known"], given["speculative"], given["classes"])
    sys.stdout = io.StringIO()
    message, own = "", True
    try:
        ended = run(play, given)
    except BaseException as error:
        ended = "wrong" if isinstance(error, AssertionError) else "exception"
        own = not any(error is raised or error.__context__ is raised for raised in play.raised)
        message = f"{type(error).__name__}: {error}"[-2000:]
    return dumps(
        {
            "operations": play.operations,
            "unknown": play.unknown + play.suspended,
            "ended": ended,
            "message": message,
            "own": own,
            "limit": play.limit,
            "obstacle": play.obstacle,
        }
    )
