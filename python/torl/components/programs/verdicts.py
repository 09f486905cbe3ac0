"""Verdicts of the judge."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from torl_sandbox import Execution, OutcomeStatus

_MAX_MESSAGE: Final = 500


class TestStatus(StrEnum):
    """The result of a program in a test.

    Attributes:
        PASSED: The result is as expected.
        WRONG: Another output, another result, or a failed assertion.
        EXCEPTION: The program raised an exception, ended early, or lacks what the test calls.
        TIMEOUT: The program exceeded its time.
        MEMORY: The program exceeded its memory.
        OUTPUT_LIMIT: The program printed too much.
        CRASH: The program ended the process that ran it, twice.
        NOT_JUDGED: The test itself failed, or does what cannot be judged. No program can bring this about.
        NOT_RUN: An earlier test decided.
    """

    __test__ = False  # no test of pytest

    PASSED = "passed"
    WRONG = "wrong"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"
    NOT_JUDGED = "not_judged"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """The verdict of a test, with the end of the message that explains a failure, and its CPU time."""

    __test__ = False

    status: TestStatus
    message: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)


_OF_OUTCOME: Final = {
    OutcomeStatus.OK: TestStatus.EXCEPTION,  # it ended before it answered
    OutcomeStatus.ERROR: TestStatus.EXCEPTION,
    OutcomeStatus.TIMEOUT: TestStatus.TIMEOUT,
    OutcomeStatus.MEMORY: TestStatus.MEMORY,
    OutcomeStatus.OUTPUT_LIMIT: TestStatus.OUTPUT_LIMIT,
    OutcomeStatus.CRASH: TestStatus.CRASH,
}


def failed(done: Execution) -> TestVerdict:
    """Return the verdict of a run that did not do what it should."""
    message = done.exception_line or ("the program ended early" if done.ok else done.status.value)
    return TestVerdict(_OF_OUTCOME[done.status], shortened(message), done.cpu_seconds)


def raised(error: Any, seconds: float) -> TestVerdict:
    """Return the verdict of a program that reported an exception."""
    kinds = _at(_at(error, "error"), "kinds")
    kind = kinds[0] if isinstance(kinds, list) and kinds else None
    name = _at(kind, "class") if isinstance(kind, dict) else kind[-1] if isinstance(kind, list) and kind else None
    message = f"{_text(name) or 'an exception'}: {_text(_at(_at(error, 'error'), 'text'))}"
    return TestVerdict(TestStatus.EXCEPTION, shortened(message), seconds)


def of_pass(played: dict[str, Any], limit: TestVerdict, seconds: float) -> TestVerdict:
    """Return the verdict of a pass that knew all results.

    Args:
        played: What the pass returned.
        limit: Verdict if an operation has no result.
        seconds: CPU time of the program.
    """
    message = shortened(played["message"])
    if played["limit"]:
        return limit
    if played["ended"] == "passed":
        return TestVerdict(TestStatus.PASSED, cpu_seconds=seconds)
    own = played["ended"] == "wrong" or played["own"]
    return TestVerdict(TestStatus.WRONG if own else TestStatus.EXCEPTION, message, seconds)


def shortened(text: str) -> str:
    """Return the start of a text, in characters that every file can have."""
    shown = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
    return shown.encode("utf-8", "backslashreplace").decode()


def parsed(report: str) -> dict[str, Any]:
    """Return the object that a report has; an empty one for a report that a program forged badly."""
    try:
        found = json.loads(report)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _at(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
