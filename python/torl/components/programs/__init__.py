"""Programs as answers: suites of tests, and the judge that runs them in the sandbox."""

from torl.components.programs.judge import Judge
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite
from torl.components.programs.verdicts import TestStatus, TestVerdict

__all__ = ["CallTest", "CodeTest", "InputTest", "Judge", "Test", "TestStatus", "TestSuite", "TestVerdict"]
