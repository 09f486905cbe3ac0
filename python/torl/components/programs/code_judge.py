"""Judge a program by code that asserts something about it: in passes, several tests together.

A pass of the tests records their operations on the program, the guest of the program executes them, and the next pass
knows their results. Each test has a new module of the program, and separate numbers of its objects: tests share nothing
but the guests, which take most of the time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from torl.components.programs.guest.transfer import dumps
from torl.components.programs.harness import Harnesses, ProgramRunner, returned_text
from torl.components.programs.suites import CodeTest
from torl.components.programs.verdicts import TestStatus, TestVerdict, failed, of_pass, parsed, raised
from torl_sandbox import Execution

MAX_TOGETHER: Final = 16
_MAX_PASSES: Final = 2_000
_MAX_LIMITS: Final = 5  # CPU time of all passes together, in limits of a test
_ENDLESS: Final = TestVerdict(TestStatus.TIMEOUT, "the operations of the test take too long")


class Operate(Protocol):
    """Runs a program once for each group of messages."""

    async def __call__(self, groups: Sequence[Sequence[Any]]) -> tuple[Execution, list[list[str]]]:
        """Return the reports of each group as JSON: of the program, then of each message."""
        ...


@dataclass(slots=True)
class _Open:
    """A test without a verdict, and the known reports of the program."""

    index: int
    given: dict[str, Any]
    known: list[Any] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    has_started: bool = False
    limit: TestVerdict = _ENDLESS
    seconds: float = 0.0

    def verdict(self, played: dict[str, Any]) -> TestVerdict | None:
        """Return the verdict of a pass, or None if it needs another."""
        self.messages = played["messages"]
        if played["obstacle"]:
            # Names of the program are all that is known: no result of the program has led the test here.
            by_itself = all(
                name == "track" or (name == "attribute" and values[0] == {"yours": 0})
                for (name, values), _ in self.known
            )
            return TestVerdict(TestStatus.NOT_JUDGED if by_itself else TestStatus.WRONG, played["obstacle"])
        if played["unknown"] or played["suspended"]:
            return None
        if not self.messages and played["ended"] == "passed" and self.given["unit"][0] == "module":
            return TestVerdict(TestStatus.NOT_JUDGED, "the test does nothing with the program")
        return of_pass(played, self.limit, self.seconds) if self.has_started else None

    def learn(self, ran: Execution, reports: list[str], seconds: float) -> TestVerdict | None:
        """Take the reports of a run, and return the verdict if the program itself failed."""
        self.seconds = seconds
        if not reports:
            return failed(ran)
        if "raised" in (start := parsed(reports[0])):
            return raised(start["raised"], seconds)
        self.has_started = True
        self.limit = failed(ran)
        found = [*reports[1:], *[None] * (len(self.messages) + 1 - len(reports))]
        self.known = [list(pair) for pair in zip(self.messages, found, strict=True)]
        return None


async def judge_code(
    tests: Sequence[CodeTest],
    harnesses: Harnesses,
    runner: ProgramRunner,
    operate: Operate,
    *,
    test_seconds: float,
    program_seconds: float,
) -> list[TestVerdict]:
    """Return the verdicts of tests.

    Args:
        tests: Tests, at most `MAX_TOGETHER`.
        harnesses: The harnesses.
        runner: Sandbox for the tests.
        operate: Runs the program.
        test_seconds: CPU time of a pass of the tests.
        program_seconds: CPU time of a run of the program.

    Raises:
        SandboxError: The sandbox failed.
    """

    async def alone(some: Sequence[int]) -> list[TestVerdict]:
        chosen = [tests[index] for index in some]
        seconds = {"test_seconds": test_seconds, "program_seconds": program_seconds}
        return await judge_code(chosen, harnesses, runner, operate, **seconds)

    verdicts = [_ENDLESS] * len(tests)
    names = ("code", "setup", "unit", "names", "modules", "classes")
    left = [_Open(index, {name: getattr(each, name) for name in names}) for index, each in enumerate(tests)]
    spent = 0.0
    for _ in range(_MAX_PASSES):
        text = dumps({"tests": [{**each.given, "known": each.known} for each in left]})
        done = await harnesses.test.run(runner, text, cpu_seconds=test_seconds)
        returned = returned_text(done)
        if returned is None and len(left) > 1:
            for each in left:
                [verdicts[each.index]] = await alone([each.index])
            break
        if returned is None and left[0].known:  # what the program returned is too much for the test
            verdicts[left[0].index] = failed(done)
            break
        if returned is None:
            reason = done.exception_line or done.status.value
            verdicts[left[0].index] = TestVerdict(TestStatus.NOT_JUDGED, f"the test failed by itself: {reason}")
            break
        left = _undecided(
            left, [each.verdict(played) for each, played in zip(left, json.loads(returned), strict=True)], verdicts
        )
        if not left or spent > _MAX_LIMITS * program_seconds:
            break
        ran, reports = await operate([each.messages for each in left])
        spent += done.cpu_seconds + ran.cpu_seconds
        # Of a run that a limit ended, the first test has had all of it; others may have been left without time.
        cut = [n for n, each in enumerate(left) if not _is_complete(reports[n], each.messages)] if reports[0] else []
        if later := [left[n].index for n in cut if n]:
            for index, verdict in zip(later, await alone(later), strict=True):
                verdicts[index] = verdict
        kept = [(each, reports[n]) for n, each in enumerate(left) if each.index not in later]
        share = ran.cpu_seconds / len(left)
        left = _undecided([each for each, _ in kept], [each.learn(ran, found, share) for each, found in kept], verdicts)
        if not left:
            break
    return verdicts


def _is_complete(reports: list[str], messages: list[Any]) -> bool:
    return len(reports) > len(messages) or (bool(reports) and "raised" in parsed(reports[0]))


def _undecided(tests: list[_Open], found: list[TestVerdict | None], verdicts: list[TestVerdict]) -> list[_Open]:
    """Enter the verdicts that were found, and return the tests without one."""
    for each, verdict in zip(tests, found, strict=True):
        if verdict is not None:
            verdicts[each.index] = verdict
    return [each for each, verdict in zip(tests, found, strict=True) if verdict is None]
