"""Programs as answers: suites of tests, and the judge that runs them in the sandbox."""

from torl.components.programs.forms import InvalidTestsError, pack_suite, unpack_suite
from torl.components.programs.judge import Judge
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite
from torl.components.programs.verdicts import TestStatus, TestVerdict

__all__ = [
    "CallTest",
    "CodeTest",
    "InputTest",
    "InvalidTestsError",
    "Judge",
    "Test",
    "TestStatus",
    "TestSuite",
    "TestVerdict",
    "pack_suite",
    "unpack_suite",
]
