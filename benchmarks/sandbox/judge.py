"""Speed of torl's judge, and of native judges in the same call: a fork server, new processes, SandboxFusion's server.

    python -m benchmarks.sandbox.judge [--sandboxfusion CHECKOUT] [--peers DIR] [--rounds 3] [--programs 20]

The problem has 100 tests with input, and 3 with assertions. Each round gives every judge different programs, so that
each test is executed, and load hits all alike; ratios are of one round, and their median is shown. The fork server is
`tests/helpers/native_judge.py`: a process for each core, a fork with limits for each test, without isolation. To
SandboxFusion each test is a request, over a connection for each core; its time limit is wall-clock time. So is that of
a new process for each test, which is what its server costs without the server.

- **input**: programs that read standard input, each with 100 tests.
- **assertions**: the same problem as a function, each program with 3 tests.
- **one in ten loops**: input again, and every tenth program never ends. A judge gives it up at its first test, after
  the limit (`--seconds`). What counts is the tests of the other programs.

Memory is the most that the judge's processes had for themselves, while programs read 100 tests.
Prints tables in Markdown and, on the last line, everything as JSON.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Protocol

from benchmarks.sandbox.peers import ENVIRONMENT, SandboxFusion, UnavailableError
from benchmarks.sandbox.speed import machine, private_mb, row, say, table
from tests.helpers.native_judge import NativeJudge
from torl.components.programs.judge import Judge
from torl.components.programs.suites import CodeTest, InputTest, Test, TestSuite
from torl_sandbox import SandboxPool

TORL, FORK, PROCESS, FUSION = "torl", "fork server", "a process for each test", "SandboxFusion"
INPUT, ASSERTIONS, LOOPS = "input", "assertions", "one in ten loops"
MIN_RATIOS = {FUSION: 20.0, PROCESS: 20.0, FORK: 3.0}  # of tests with input in a second, on two quiet cores

# The longest increasing part of a sequence.
FUNCTION = """
from bisect import bisect_left
def longest(numbers):
    ends = []
    for number in numbers:
        place = bisect_left(ends, number)
        ends[place : place + 1] = [number]
    return len(ends)
"""
READING = FUNCTION + "input()\nprint(longest(list(map(int, input().split()))))\n"
LOOPING = "while True:\n    pass\n"
NUMBERS = count()


class Engine(Protocol):
    """A judge.

    Attributes:
        about: What it is.
    """

    about: str

    def judge(self, programs: Sequence[str], tests: Sequence[Test]) -> int:
        """Judge programs, each up to its first failure, and return the number of tests that passed."""
        ...

    def processes(self) -> list[int]:
        """Return the processes that it consists of, without the calling one."""
        ...

    def close(self) -> None:
        """End the judge."""
        ...


class Torl:
    """torl's judge, with nothing answered from memory."""

    def __init__(self, seconds: float, lanes: int) -> None:
        self.pool = SandboxPool(lanes, result_cache_bytes=0, cpu_seconds=seconds, wall_seconds=600)
        self.about = f"{lanes} workers, isolated"
        self._judge = Judge(self.pool, cpu_seconds=seconds)
        asyncio.run(self._judge.start())

    def judge(self, programs: Sequence[str], tests: Sequence[Test]) -> int:
        async def all_programs() -> int:
            suite = TestSuite(tuple(tests))
            judged = (self._judge.judge(program, suite, stop_at_failure=True) for program in programs)
            return sum(each.status.value == "passed" for found in await asyncio.gather(*judged) for each in found)

        return asyncio.run(all_programs())

    def processes(self) -> list[int]:
        return list(self.pool.processes())

    def close(self) -> None:
        self.pool.close()


class Lanes:
    """A judge with a thread for each core."""

    def __init__(self, lanes: int) -> None:
        self._threads = ThreadPoolExecutor(lanes)
        self._lanes = range(lanes)

    def judge(self, programs: Sequence[str], tests: Sequence[Test]) -> int:
        left = iter(programs)  # `next` of a list's iterator is one step, so threads can share it
        return sum(self._threads.map(lambda lane: sum(self.passed(each, tests, lane) for each in left), self._lanes))

    def passed(self, program: str, tests: Sequence[Test], lane: int) -> int:
        raise NotImplementedError


class ForkServer(Lanes):
    """A CPython that forks for each test."""

    def __init__(self, python: str, seconds: float, lanes: int) -> None:
        super().__init__(lanes)
        self._judges = [NativeJudge(python, cpu_seconds=round(seconds)) for _ in range(lanes)]
        self.about = f"{self._judges[0].about}, {lanes} processes, a fork with limits for each test, not isolated"

    def passed(self, program: str, tests: Sequence[Test], lane: int) -> int:
        found = self._judges[lane].judge(program, tests, stop_at_failure=True)
        return sum(status == "passed" for status, _ in found)

    def processes(self) -> list[int]:
        return [each.process_id for each in self._judges]

    def close(self) -> None:
        for each in self._judges:
            each.__exit__()


class PrintingJudge(Lanes):
    """A judge that runs a whole program for each test, and compares what it prints."""

    def passed(self, program: str, tests: Sequence[Test], lane: int) -> int:
        for number, test in enumerate(tests):
            if isinstance(test, InputTest):
                is_passed = self.printed(program, test.stdin, lane) == test.stdout
            else:
                assert isinstance(test, CodeTest)
                is_passed = self.printed(f"{program}\n{test.code}\nprint('passed')", "", lane) == "passed\n"
            if not is_passed:
                return number
        return len(tests)

    def printed(self, code: str, stdin: str, lane: int) -> str:
        raise NotImplementedError


class ProcessForEachTest(PrintingJudge):
    """A CPython that starts for each test, as SandboxFusion's server and most published judges do."""

    def __init__(self, python: str, seconds: float, lanes: int) -> None:
        super().__init__(lanes)
        self._command = [python, "-I", "-c"]
        self._seconds = seconds
        self._running = [0] * lanes
        self.about = f"{python}, a new process for each test, not isolated"

    def printed(self, code: str, stdin: str, lane: int) -> str:
        pipe = subprocess.PIPE
        with subprocess.Popen([*self._command, code], stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT) as process:
            self._running[lane] = process.pid
            try:
                return process.communicate(stdin, timeout=self._seconds)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                return ""

    def processes(self) -> list[int]:
        return [each for each in self._running if each]

    def close(self) -> None:
        """Nothing is left running."""


class Fusion(PrintingJudge):
    """SandboxFusion's own server."""

    def __init__(self, source: Path, directory: Path, python: str, seconds: float, lanes: int) -> None:
        super().__init__(lanes)
        self._server = SandboxFusion(source, directory, python, lanes)
        self._seconds = seconds
        self.about = self._server.about

    def printed(self, code: str, stdin: str, lane: int) -> str:
        asked = {"code": code, "language": "python", "stdin": stdin, "run_timeout": self._seconds}
        connection = self._server.connections[lane]
        connection.request("POST", "/run_code", json.dumps(asked), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        return str(answer["run_result"]["stdout"])

    def processes(self) -> list[int]:
        return [self._server.process.pid]

    def close(self) -> None:
        self._server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxfusion", type=Path, help="a checkout of SandboxFusion")
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "torl" / "peers")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the native judges")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=int, default=20, help="programs of a measurement")
    parser.add_argument("--seconds", type=float, default=6.0, help="limit of a test")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    results: dict[str, Any] = {"machine": machine(cores), "load_before": os.getloadavg()[0], "seconds": options.seconds}
    with engines(options, cores) as (running, missing):
        results["engines"] = {name: engine.about for name, engine in running.items()}
        results["not_measured"] = missing
        rates = measure(running, options)
        results["memory_mb"] = {name: round(peak_memory(engine, options.programs), 1)
                                for name, engine in running.items()}  # fmt: skip
    results["load_after"] = os.getloadavg()[0]
    results["tests_per_s"] = {name: {part: statistics.median(each) for part, each in rows.items()}
                              for name, rows in rates.items()}  # fmt: skip
    results["ratio"] = {
        name: {part: statistics.median(map(lambda ours, its: ours / its, rates[TORL][part], rows[part]))
               for part in rows}
        for name, rows in rates.items() if name != TORL
    }  # fmt: skip
    show(results)
    print(json.dumps(results))


@contextmanager
def engines(options: argparse.Namespace, lanes: int) -> Iterator[tuple[dict[str, Engine], dict[str, str]]]:
    """Every judge that runs here, and why the others do not. Ends them afterwards."""

    def fusion() -> Engine:
        if options.sandboxfusion is None:
            raise UnavailableError("its source was not given (--sandboxfusion)")
        return Fusion(options.sandboxfusion, options.peers, options.python, options.seconds, lanes)

    makers: dict[str, Callable[[], Engine]] = {
        TORL: lambda: Torl(options.seconds, lanes),
        FORK: lambda: ForkServer(options.python, options.seconds, lanes),
        PROCESS: lambda: ProcessForEachTest(options.python, options.seconds, lanes),
        FUSION: fusion,
    }
    running: dict[str, Engine] = {}
    missing: dict[str, str] = {}
    try:
        for name, make in makers.items():
            try:
                running[name] = make()
            except UnavailableError as error:
                missing[name] = str(error)
        yield running, missing
    finally:
        for engine in running.values():
            engine.close()


def input_tests(number: int) -> list[Test]:
    random = Random(number)
    namespace: dict[str, Any] = {}
    exec(FUNCTION, namespace)
    rows = [[random.randrange(1000) for _ in range(200)] for _ in range(100)]
    return [InputTest(f"200\n{' '.join(map(str, each))}\n", f"{namespace['longest'](each)}\n") for each in rows]


ASSERTION_TESTS: list[Test] = [
    CodeTest(f"assert longest({numbers}) == {expected}", names=("longest",))
    for numbers, expected in (([3, 1, 2, 5, 4], 3), ([], 0), ([5, 4, 3], 1))
]


def measure(running: dict[str, Engine], options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the tests in a second of each round, by judge and part."""
    rates: dict[str, dict[str, list[float]]] = {name: {} for name in running}
    for number in range(options.rounds):
        for part in (INPUT, ASSERTIONS, LOOPS):
            tests = ASSERTION_TESTS if part == ASSERTIONS else input_tests(number)
            for name, engine in running.items():
                source = FUNCTION if part == ASSERTIONS else READING
                loops = range(0, options.programs if part == LOOPS else 0, 10)
                programs = [LOOPING if i in loops else different(source) for i in range(options.programs)]
                started = time.perf_counter()
                passed = engine.judge(programs, tests)
                seconds = time.perf_counter() - started
                right = (options.programs - len(loops)) * len(tests)
                if passed != right:
                    say(f"{name} passed {passed} of {right} tests of right programs: {part}")
                rates[name].setdefault(part, []).append(passed / seconds)
                say(f"round {number + 1}, {part}, {name}: {passed / seconds:.4g} tests/s")
    return rates


def different(source: str) -> str:
    return f"{source}# {next(NUMBERS)}\n"


def peak_memory(engine: Engine, programs: int) -> float:
    """Return the most private memory in MB that the processes of a judge had together."""
    found = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            total = 0.0
            for process in family(engine.processes()):
                try:
                    total += private_mb(process)
                except (OSError, ProcessLookupError):  # it ended
                    continue
            found.append(total)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        engine.judge([different(READING) for _ in range(programs)], input_tests(0))
    finally:
        ended.set()
        watcher.join()
    return max(found)


def family(processes: Sequence[int]) -> list[int]:
    """Return processes and their descendants."""
    found = list(processes)
    for process in found:  # grows
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def show(results: dict[str, Any]) -> None:
    """Print tables in Markdown."""
    host = results["machine"]
    print(f"\n{host['processor']}, {host['cores']} cores, Linux {host['kernel']}, commit {host['commit']}; ", end="")
    print(f"load {results['load_before']:.1f} before, {results['load_after']:.1f} after\n")
    parts = (INPUT, ASSERTIONS, LOOPS)
    table("judge", [f"{part}, tests/s" for part in parts] + ["memory, MB", "what it is"])
    for name, rates in results["tests_per_s"].items():
        row(name, [*(rates[part] for part in parts), results["memory_mb"][name], results["engines"][name]])
    for name, reason in results["not_measured"].items():
        print(f"\n{name} was not measured: {reason}")
    print()
    table("torl's rate over", [*parts, "goal for input", "met"])
    for name, ratios in results["ratio"].items():
        is_met = ratios[INPUT] >= MIN_RATIOS[name]
        row(name, [*(ratios[part] for part in parts), MIN_RATIOS[name], "yes" if is_met else "**no**"])
    print()


if __name__ == "__main__":
    main()
