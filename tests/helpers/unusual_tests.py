"""Makers of tests for programs that are right in unusual ways."""

from torl.components.programs import CallTest, InputTest, Test
from torl.components.programs.suites import assertion_tests, defined_classes, module_tests


def asserted(program: str, *codes: str) -> tuple[str, tuple[Test, ...]]:
    """Return a program with a test for each piece of code."""
    return program, assertion_tests(codes, program, classes=defined_classes(program))


def module_of(program: str, code: str) -> tuple[str, tuple[Test, ...]]:
    """Return a program with the tests of a module."""
    return program, module_tests(code, ("solution",), program)


def printed(program: str, *pairs: tuple[str, str]) -> tuple[str, tuple[Test, ...]]:
    return program, tuple(InputTest(stdin, stdout) for stdin, stdout in pairs)


def called(program: str, *calls: tuple[str, list[object], object]) -> tuple[str, tuple[Test, ...]]:
    return program, tuple(CallTest(*call) for call in calls)
