"""Programs as answers: suites of tests, and the judge that runs them in the sandbox.

A test gives standard input, calls a function, or is code: assertions, a function `check`, test functions and classes of
unittest and pytest (parameters, fixtures, `raises`, `approx`, `capsys`). Nothing that is expected of a program enters
the guest that runs it. Code of tests runs in another guest, where objects of the program are proxies, and data are
copies that follow their originals.

Not judged (`TestStatus.NOT_JUDGED`, with the cause): tests that skip themselves or are expected to fail, share files,
environment or standard input with the program, patch what is not the program's, watch its warnings or logs, derive
classes from its classes, or need other fixtures. Wrong, with the cause: an object of the program that is compared with
data by its own order or equality, since it could claim any; data nested deeper than 200 levels.

Two leaks remain. A program can see the later operations of its tests, such as arguments of later calls. And a weak test
stays weak: it passes for every program that meets it.
"""

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
