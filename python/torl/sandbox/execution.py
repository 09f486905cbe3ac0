"""What a run of code in the sandbox did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torl.types import OutcomeStatus


@dataclass(frozen=True, slots=True)
class Execution:
    """What one run did. `stdout` and `stderr` keep what was written before a limit was hit."""

    status: OutcomeStatus  # "error": an uncaught exception, `sys.exit` with a non-zero code included
    stdout: str
    stderr: str
    exception_type: str | None  # "ZeroDivisionError"
    exception_line: str | None  # the one with type and message: "ZeroDivisionError: division by zero"
    traceback: str | None
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    value: str | None = None  # if asked for: `repr` of the last statement's value, unless it has none or None
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)  # if asked for: what the run made or changed

    @property
    def ok(self) -> bool:
        """Whether the run ended well."""
        return self.status is OutcomeStatus.OK
