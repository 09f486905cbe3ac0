"""Programs as answers: suites of tests, and the judge that runs them in the sandbox."""

from torl.components.programs.judge import Judge, TestStatus, TestVerdict
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite

__all__ = ["CallTest", "CodeTest", "InputTest", "Judge", "Test", "TestStatus", "TestSuite", "TestVerdict"]
