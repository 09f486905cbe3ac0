"""A judge on the CPython of this machine, as public sets publish theirs: the program and its tests in one process.

It is the oracle of torl's judge, and no more than that: a program can patch, read or skip its tests. Each test has a
separate fork, under limits of resources. The process of the judge, `python native_judge.py`, has the standard library
alone (and pytest, for test functions): it reads a line of JSON for each program, and answers with a line.
"""

import contextlib
import dataclasses
import decimal
import gc
import importlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import types
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED, TIMEOUT, NOT_RUN = "passed", "failed", "skipped", "timeout", "not_run"
MEMORY_BYTES = 4 << 30
WALL_FACTOR = 300  # other processes of the machine take their part of the cores


class NativeJudge:
    """Judges programs on a CPython; a context manager.

    Args:
        executable: Interpreter. The nearer its version is to the guest's, the fewer differences are of version.
        cpu_seconds: CPU time of a test.
        with_pytest: Whether it needs pytest, for test functions.
    """

    def __init__(
        self, executable: str | Path = sys.executable, *, cpu_seconds: int = 10, with_pytest: bool = False
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self._directory = tempfile.TemporaryDirectory()  # programs may write files
        environment = {**os.environ, "PYTHONHASHSEED": "0", "TZ": "UTC"}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [str(executable), "-W", "ignore", __file__, *["pytest"] * with_pytest],
            cwd=self._directory.name,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            errors="surrogatepass",
        )
        self.about: str = self._answer()
        self.process_id = self._process.pid

    def judge(
        self, program: str, tests: Sequence[Any], *, prelude: str = "", stop_at_failure: bool = False
    ) -> list[tuple[str, str]]:
        """Return how each test ended, and the last line of the error.

        Args:
            program: Source of the program.
            tests: Tests of a `TestSuite`.
            prelude: Code before the program.
            stop_at_failure: Whether to run no test after one that failed.
        """
        order = {
            "program": prelude + program,
            "tests": [{"kind": type(each).__name__, **dataclasses.asdict(each)} for each in tests],
            "cpu_seconds": self.cpu_seconds,
            "stop_at_failure": stop_at_failure,
        }
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return [(status, message) for status, message in self._answer()]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the native judge ended with status {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> "NativeJudge":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()


def run_input(program: str, test: dict[str, Any]) -> None:
    """Run a program with standard input. What it prints is compared after its process ended."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(test["stdin"].encode()))
    sys.stdout = os.fdopen(1, "w")
    with contextlib.suppress(SystemExit):
        exec(compile(program, "main.py", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()


def compared(printed: str, expected: str) -> list[str]:
    """Return how a test ends whose program printed something: lines of equal words, or of equal numbers."""
    one, two = ([line.split() for line in text.strip().splitlines()] for text in (printed, expected))
    if one == two or _decimals(one) == _decimals(two):
        return [PASSED, ""]
    return [FAILED, f"printed {printed[:300]!r}"]


def _decimals(lines: list[list[str]]) -> Any:
    """Return the lines as numbers, or something that equals nothing."""
    try:
        return [[decimal.Decimal(each) for each in line] for line in lines]
    except decimal.InvalidOperation:
        return object()


def run_call(program: str, test: dict[str, Any]) -> None:
    """Call a function of a program, and compare its result; a tuple equals a list."""
    space: dict[str, Any] = {"__name__": "solution"}
    exec(compile(program, "solution.py", "exec"), space)
    first, *rest = test["function"].split(".")
    function = space[first]
    for name in rest:
        function = getattr(function(), name)
    result = function(*test["arguments"])
    result = list(result) if isinstance(result, tuple) else result
    if isinstance(result, list):
        result = [list(each) if isinstance(each, tuple) else each for each in result]
    assert result == test["expected"], f"returned {result!r}"


def run_code(program: str, test: dict[str, Any]) -> None:
    """Run the program and the code of a test in one namespace; in a module each where the test imports the program."""
    kind, *place = test["unit"]
    module = types.ModuleType("solution")
    sys.modules.update(dict.fromkeys(("solution", *test["modules"]), module))
    exec(compile(program, "solution.py", "exec"), module.__dict__)
    if kind in ("module", "check"):
        if kind == "module":  # the programs of HumanEval begin with their problem's helpers
            exec(compile(test["setup"], "setup.py", "exec"), module.__dict__)
        exec(compile(test["code"], "tests.py", "exec"), module.__dict__)
        if kind == "check":
            module.__dict__["check"](module.__dict__[place[0]])
        return
    names = "".join(f"from solution import {name}\n" for name in test["names"] if hasattr(module, name))
    Path("test_of_program.py").write_text(f"{test['setup']}\n{names}{test['code']}", errors="surrogatepass")
    sys.path.insert(0, str(Path.cwd()))
    run = run_method if kind == "method" else run_with_pytest
    run("::".join(["test_of_program.py", *place]))


def run_method(place: str) -> None:
    _, class_name, name = place.split("::")
    result = unittest.TestResult()
    unittest.TestSuite([getattr(__import__("test_of_program"), class_name)(name)]).run(result)
    for _, text in (*result.errors, *result.failures):
        raise AssertionError(text)
    assert not result.unexpectedSuccesses
    if result.skipped:
        raise unittest.SkipTest


def run_with_pytest(place: str) -> None:
    import pytest

    ended: list[str] = []

    class Results:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                ended.append(report.longreprtext)
            elif report.skipped:
                ended.append("")

    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "-W", "ignore"]
    status = pytest.main([*options, place], plugins=[Results()])
    if any(ended) or status not in (0, 1):
        raise AssertionError("".join(ended) or f"pytest ended with status {status}")
    if ended:
        raise unittest.SkipTest


RUNS: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "InputTest": run_input, "CallTest": run_call, "CodeTest": run_code,
}  # fmt: skip


def forked(program: str, test: dict[str, Any], cpu_seconds: int) -> list[str]:
    """Run a test in a fork under limits, and return how it ended, and the last line of the error."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.dup2(printed.fileno(), 1)
            run_alone(program, test, cpu_seconds, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as answers:
            answer = answers.read()
        _, status = os.waitpid(child, 0)
        if test["kind"] == "InputTest" and status == 0 and (not answer or json.loads(answer)[0] == PASSED):
            printed.seek(0)
            return compared(printed.read().decode(errors="replace"), test["stdout"])
    if answer:
        return list(json.loads(answer))
    is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
    return [TIMEOUT if is_late else FAILED, f"ended with status {status}"]


def run_alone(program: str, test: dict[str, Any], cpu_seconds: int, writer: int) -> None:
    """Run a test in this process, write how it ended, and end the process."""
    limit(cpu_seconds)
    status, message = PASSED, ""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        os.chdir(directory)
        try:
            RUNS[test["kind"]](program, test)
        except unittest.SkipTest:
            status = SKIPPED
        except BaseException as error:
            lines = str(error).strip().splitlines() or [""]
            status, message = FAILED, f"{type(error).__name__}: {lines[-1]}"[:300]
        os.chdir("..")
    os.write(writer, json.dumps([status, message]).encode())
    os._exit(0)


def limit(cpu_seconds: int) -> None:
    """Set the limits of a forked process."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(WALL_FACTOR * cpu_seconds)
    sys.setrecursionlimit(10_000)
    sys.set_int_max_str_digits(0)


def main() -> None:
    """Answer each line of standard input."""
    orders, answers = os.fdopen(os.dup(0), errors="surrogatepass"), os.fdopen(os.dup(1), "w")
    for descriptor in (0, 1, 2):  # what a program reads and prints is neither an order nor an answer
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()
    print(json.dumps(f"CPython {sys.version.split()[0]}"), file=answers, flush=True)
    for line in orders:
        order = json.loads(line)
        ended: list[list[str]] = []
        for test in order["tests"]:
            stopped = order["stop_at_failure"] and any(status != PASSED for status, _ in ended)
            run = [NOT_RUN, ""] if stopped else forked(order["program"], test, order["cpu_seconds"])
            ended.append(run)
        print(json.dumps(ended), file=answers, flush=True)


if __name__ == "__main__":
    main()
