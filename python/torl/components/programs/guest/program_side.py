"""Run a model's program, then the operations of its tests on it, and report each result.

The program can change all of this, since it runs in the same interpreter, and gains nothing: here are the arguments of
the tests, and never what is expected of it. A report is a claim about a result, which is compared elsewhere.

An operation that uses an object of the test, such as a function that the test passes, reports what it asks of the test.
The next message then is its result, or an operation that the test performs first.
"""

import functools
import io
import json
import os
import sys
import types
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from torl.components.programs.guest.operations import containers, containers_of_call, operate
from torl.components.programs.guest.side import BaseSide
from torl.components.programs.guest.transfer import MARK, dumps

_MAX_PRINTED = 100_000


class ProgramSide(BaseSide):
    """A program, and the messages of its test, of which each has a report: 0 is the program itself.

    Args:
        index: Number of the test.
        messages: Operations, and results of what the program asked.
        channel: Stream of the reports.
        run_others: Runs the tests after this one.
    """

    own_modules = ("solution", "__main__")

    def __init__(self, index: int, messages: list[Any], channel: TextIO, run_others: Callable[[], None]) -> None:
        super().__init__()
        self._module = sys.modules["solution"] = types.ModuleType("solution")
        self.number(self._module)
        self._index = index
        self._channel = channel
        self._run_others = run_others
        self._messages = messages
        self._next = 0
        self._tracks = False  # reports the numbers of containers
        self._printed: Callable[[], str] = str

    def report(self, content: dict[str, Any]) -> None:
        """Report what came of the last message."""
        try:
            renewed = {"data": changed} if (changed := self.changed_data()) else {}
        except Exception:
            renewed = {}  # an object became something that cannot cross
        report = dumps({**content, **renewed, "printed": self._printed()})
        self._channel.write(f"\n{MARK}{self._index}.{self._next} {report}\n")
        self._channel.flush()
        self._next += 1
        self._printed = captured()

    def run(self, source: str, setup: str) -> None:
        """Run the program, then all operations."""
        self._printed = captured()
        try:
            space = self._module.__dict__
            exec(compile(setup, "setup.py", "exec"), space)
            exec(compile(source, "solution.py", "exec"), space)
        except BaseException as error:
            self.report({"raised": self.described(error)})
            return
        self.report({})
        while self._next <= len(self._messages):
            self._execute(*self._messages[self._next - 1])

    def do(self, name: str, values: list[Any]) -> Any:
        """Ask the test for an operation on an object of the test."""
        self.report({"ask": [name, self.encoded(values)]})
        while self._next <= len(self._messages):
            name, content = self._messages[self._next - 1]
            if name == "return":
                return self.decoded(content)
            if name == "raise":
                raise self.decoded(content)
            self._execute(name, content)
        self._run_others()
        os._exit(0)  # the next pass knows the result

    def received(self, found: dict[str, Any]) -> Any:
        number = found["mine"]
        if found.get("kind") != "function":
            return super().received(found)
        if number not in self._received:
            proxy = self.proxy(found)
            made = types.FunctionType(_call.__code__, {"proxy": proxy}, found["name"])
            self._received[number] = made
            self._returned[id(made)] = number
        return self._received[number]

    def _execute(self, name: str, encoded: list[Any]) -> None:
        content: dict[str, Any] = {}
        values: list[Any] = []
        try:
            values = self.decoded(encoded)
            self._tracks |= name == "track"
            if self._tracks:
                content["argument_numbers"] = [self.number(each) for each in containers(values)]
            result = operate(name, values)
            if self._tracks:
                content["numbers"] = [self.number(each) for each in containers(result)]
            content["value"] = self.encoded(result)
            del result
            content |= self._kept(name, values)
        except BaseException as error:
            content |= {"raised": self.described(error)}
        if name == "call" and values:
            try:
                content |= self._changes(encoded, values)
            except Exception:
                obstacle = ValueError("an argument became something that cannot cross")
                content = {"raised": self.described(obstacle)}
        self.report(content)

    def _kept(self, name: str, values: list[Any]) -> dict[str, Any]:
        """Return the places and the numbers of the arguments that the program refers to after a call."""
        arguments = list(containers_of_call(values)) if name == "call" else []
        found = []
        for place, count in enumerate(_reference_counts(arguments)):
            if count > _OWN_REFERENCES + self._tracks and isinstance(arguments[place], list | dict | set):
                found.append([place, self.number(arguments[place])])
                self.described(arguments[place])  # from here on reported when it changes
        return {"kept": found} if found else {}

    def _changes(self, before: list[Any], values: list[Any]) -> dict[str, Any]:
        """Return the arguments that a call changed, by index or name."""
        _, old, old_named = before
        _, arguments, named = values
        old_named = {pair[0]: pair[1] for pair in old_named["dict"]}
        places = [*((index, old[index], value) for index, value in enumerate(arguments))]
        places += [(name, old_named[name], value) for name, value in named.items()]
        found = []
        for place, was, value in places:
            is_array = type(value).__name__ in ("ndarray", "array")
            changes = is_array or isinstance(value, list | tuple | dict | set | bytearray | deque)
            if changes and (new := self.encoded(value)) != was:
                found.append([place, new])
        return {"changed": found} if found else {}


def _reference_counts(found: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in found]


_holder: list[Any] = [[]]
[_OWN_REFERENCES] = _reference_counts(list(_holder))  # to an argument that nothing but its message holds


def _call(*arguments: Any, **named: Any) -> Any:
    return proxy(*arguments, **named)  # type: ignore[name-defined] # noqa: F821


def captured() -> Callable[[], str]:
    """Replace standard output, and return a function that returns what was printed."""
    buffer = io.BytesIO()
    sys.stdout = io.TextIOWrapper(buffer, encoding="utf-8", errors="surrogatepass", write_through=True)
    return lambda: "" if buffer.closed else buffer.getvalue().decode("utf-8", "replace")[:_MAX_PRINTED]


def main() -> None:
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(10_000)
    given = json.loads(sys.stdin.read())
    sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
    run_groups(given, 0, sys.stdout)


def run_groups(given: dict[str, Any], first: int, channel: TextIO) -> None:
    """Run a program anew for each group of messages, from one on."""
    for index in range(first, len(given["groups"])):
        others = functools.partial(run_groups, given, index + 1, channel)
        ProgramSide(index, given["groups"][index], channel, others).run(given["program"], given["setup"])
