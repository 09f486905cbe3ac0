"""A pass of a test, with the results that its operations on the program had.

The program is in another guest, and its objects are proxies here. An operation whose result is not known yet yields an
`Unknown`, with which the test continues, so that many operations are found in one pass; or it suspends the test. The
result of a pass counts only if it knew the results of all its operations.
"""

import array
import ast
import json
import pathlib
import sys
import types
import unittest
from typing import Any, TypeGuard

from torl.components.programs.guest.identity import interned, numbered, rewritten
from torl.components.programs.guest.operations import containers_of_call, operate
from torl.components.programs.guest.proxies import Proxy, number_of, with_role
from torl.components.programs.guest.side import BaseSide
from torl.components.programs.guest.transfer import TransferError
from torl.components.programs.guest.unknown import Suspended, Unknown
from torl.components.programs.guest.unsupported import obstacles

_MAX_UNKNOWN = 5_000
_UNSHARED = (
    types.ModuleType,
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.CoroutineType,
    unittest.TestCase,
    pathlib.PurePath,
)
"""Types of objects that lead to the code of a test, with what it expects, or to files."""
_FORMATS = ("format", "format_map")  # of texts: "{0.__code__}"


class CannotJudgeError(BaseException):
    """Ends a pass: the test does something that cannot cross to the program."""


class LimitError(BaseException):
    """Ends a pass: the program reached a limit, or ended, in an operation."""


class Play(BaseSide):
    """One pass of a test.

    Args:
        known: Messages of the pass before, with their reports as JSON, or None for what the program did not report.
        classes: Names of the classes that the problem asks for.

    Attributes:
        tree: The test.
        messages: Operations on the program, and answers to what it asked, in order.
        unknown: Number of operations without a known result.
        suspended: Whether the test needs a result that is not known.
        obstacle: Why the test cannot be judged.
        limit: Whether the program ended in an operation.
        failure: Why the test failed, regardless of how it ended.
        raised: Exceptions of the program.
    """

    own_modules = ("tests",)
    trusting = False

    tree: ast.Module

    def __init__(self, known: list[Any], classes: list[str]) -> None:
        super().__init__()
        self.known = known
        self.messages: list[Any] = []
        self.unknown = 0
        self.suspended = False
        self.obstacle = ""
        self.limit = False
        self.failure = ""
        self.raised: list[BaseException] = []
        self._classes = set(classes)
        self._raising: set[int] = set()
        self._containers: dict[int, Any] = {}  # data that are lists and the like, by number in the program
        Unknown.check = self.check

    def read(self, code: str, modules: list[str]) -> None:
        """Read the source of the test.

        Raises:
            CannotJudgeError: The test needs something that the judge does not have.
        """
        self.tree, has_identity = rewritten(ast.parse(code))
        self._raising = {node.lineno for node in ast.walk(self.tree) if _raises_by_itself(node)}
        for reason in obstacles(self.tree, modules):
            raise self.obstruct(reason)
        if has_identity:
            self.do("track", [])

    def attribute(self, name: str) -> Any:
        """Return an attribute of the module of the program."""
        value = self.do("attribute", [self.proxy({"mine": 0}), name])
        return with_role(value, "class") if name in self._classes else value

    def do(self, name: str, values: list[Any]) -> Any:
        if self.suspended or self.obstacle or self.limit:
            raise Suspended
        report = self._send(name, values)
        while report is not None and "ask" in report:
            report = self._send(*self._answer(*report["ask"]))
        if report is None:
            return Unknown()
        numbered(values, report.get("argument_numbers", []), self._containers)
        found = list(containers_of_call(values)) if "kept" in report else []
        self._containers |= {number: found[place] for place, number in report.get("kept", ())}
        for place, new in report.get("changed", ()):
            _replace(values[1 if isinstance(place, int) else 2][place], self.decoded(new))
        if "raised" in report:
            error = self.decoded(report["raised"])
            self.raised.append(error)
            raise error
        value = self.decoded(report["value"])
        return interned(value, iter(report["numbers"]), self._containers) if "numbers" in report else value

    def _send(self, name: str, content: Any) -> dict[str, Any] | None:
        """Return the report of a message, or None if it is not known."""
        try:
            message = [name, self.encoded(content)]
        except TransferError as error:
            raise self.obstruct(str(error)) from None
        except Suspended:
            self.suspended = True
            raise
        index = len(self.messages)
        self.messages.append(message)
        if index < len(self.known) and self.known[index][0] != message:
            del self.known[index:]
        if index < len(self.known):
            text = self.known[index][1]
            if text is None:
                self.limit = True
                raise LimitError
            report: dict[str, Any] = json.loads(text)
            sys.stdout.write(report.get("printed", ""))
            for number, data in report.get("data", ()):
                if number in self._containers:
                    _replace(self._containers[number], self.decoded(data))
                self.renew(number, data)
            return report
        self.unknown += 1
        if self.unknown > _MAX_UNKNOWN:
            self.suspended = True
            raise Suspended
        return None

    def _answer(self, name: str, encoded: list[Any]) -> tuple[str, Any]:
        """Return the result of an operation of the program on an object of the test."""
        try:
            _permit(name, encoded)
            values = self.decoded(encoded)
            return "return", operate(name, values)
        except (Suspended, CannotJudgeError, LimitError):
            raise
        except BaseException as error:
            if isinstance(error, AssertionError):
                self.failure = f"{type(error).__name__}: {error}"  # the program must not suppress it
                raise
            return "raise", error

    def leave(self, name: str, context: Proxy, error: BaseException | None) -> bool:
        """Leave a context. Only an error that the test raises by itself can be suppressed, and no failure."""
        trace = error and error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        own = trace and trace.tb_frame.f_code.co_filename == "tests.py" and trace.tb_lineno in self._raising
        if not own or isinstance(error, AssertionError | unittest.SkipTest):
            super().leave(name, context, None)
            return False
        return super().leave(name, context, error)

    def check(self, value: object) -> None:
        if isinstance(value, _UNSHARED):
            raise self.obstruct(f"the test passes a {type(value).__name__} to the program")

    def refuse(self, reason: str) -> BaseException:
        self.failure = reason
        return CannotJudgeError(reason)

    def obstruct(self, reason: str) -> BaseException:
        self.obstacle = reason
        return CannotJudgeError(reason)

    def received(self, found: dict[str, Any]) -> Any:
        return self._awaitable(found) if found.get("kind") == "coroutine" else super().received(found)

    def _awaitable(self, found: dict[str, Any]) -> Any:
        async def wait() -> Any:
            return self.do("await", [self.proxy(found)])

        return wait()


def _permit(name: str, values: list[Any]) -> None:
    """Refuse what would lead a program from an object of the test to its code.

    Raises:
        AttributeError: The operation is not for programs.
    """
    of_test = isinstance(values[0], dict) and "yours" in values[0]
    hides = name in ("attribute", "set", "delete") and (values[1].startswith("_") or values[1] in _FORMATS)
    if name == "apply" or hides or (name in ("attribute", "call") and not of_test):
        raise AttributeError(f"{name} is not for programs")


def _raises_by_itself(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a statement raises an exception, regardless of the program."""
    if isinstance(node, ast.Expr):
        return not any(isinstance(each, ast.Name) for each in ast.walk(node))
    return isinstance(node, ast.Raise)


def _replace(old: Any, new: Any) -> None:
    """Give a container that the program changed its new content, and so to the containers in it."""
    pairs = [(key, old[key], each) for key, each in new.items() if key in old] if isinstance(old, dict) else []
    if isinstance(old, list | tuple) and len(old) == len(new):
        pairs = [(index, was, each) for index, (was, each) in enumerate(zip(old, new, strict=True))]
    for place, was, each in pairs:
        if type(was) is type(each) and isinstance(was, list | tuple | dict | set):
            _replace(was, each)
        if isinstance(old, tuple):
            continue
        if type(was) is type(each) and isinstance(was, list | dict | set):
            new[place] = was
        elif type(was) is type(each) is Proxy and number_of(was) == number_of(each):
            new[place] = was  # with its role
    if isinstance(old, tuple):
        return
    if hasattr(old, "shape"):
        old[...] = new
    elif isinstance(old, list | bytearray | array.array):
        old[:] = new
    else:
        old.clear()
        (old.extend if hasattr(old, "extend") else old.update)(new)
