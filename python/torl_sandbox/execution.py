"""The outcome of code in the sandbox, and the protocols of interpreters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torl_sandbox._core as _core
from torl_sandbox.errors import NO_OUTPUT, OutcomeStatus


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of a run. Output before a limit was hit is kept.

    Attributes:
        status: Status. An uncaught exception is an error, also `sys.exit` with a non-zero code.
        stdout: Text printed to standard output.
        stderr: Text printed to standard error.
        exception_type: Type of the uncaught exception, such as "ZeroDivisionError".
        exception_line: Line of the traceback with type and message, such as "ZeroDivisionError: division by zero".
        traceback: Whole traceback of the uncaught exception.
        cpu_seconds: CPU time.
        wall_seconds: Wall time.
        peak_memory_bytes: Maximum memory in use, the interpreter's own included.
        value: On request, the `repr` of the last statement's value, unless it is None.
        files: On request, the files that the run created or changed.
        node: Node of the cluster that executed it. None outside a cluster.
    """

    status: OutcomeStatus
    stdout: str
    stderr: str
    exception_type: str | None
    exception_line: str | None
    traceback: str | None
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    value: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    node: int | None = field(default=None, compare=False)

    @classmethod
    def from_core(cls, outcome: _core.SandboxOutcome) -> "Execution":
        """Convert an outcome of the core."""
        return cls(
            status=OutcomeStatus(outcome.status),
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            exception_type=outcome.exception_type,
            exception_line=outcome.exception_line,
            traceback=outcome.traceback,
            cpu_seconds=outcome.cpu_seconds,
            wall_seconds=outcome.wall_seconds,
            peak_memory_bytes=outcome.peak_memory_bytes,
            value=outcome.value,
            # Names are bytes in the guest. Invalid UTF-8 is escaped as `os.fsdecode` does.
            files={path.decode("utf-8", "surrogateescape"): content for path, content in outcome.files},
        )

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return self.status is OutcomeStatus.OK


def render_transcript(outcome: Execution) -> str:
    """Render a run as in an interactive interpreter: output, value, traceback, and the limit that stopped it.

    The text is never blank, which providers of models refuse: a successful run without output yields a notice.
    """
    text = "\n".join(part.rstrip("\n") for part in _transcript_parts(outcome) if part)
    return text if text.strip() else NO_OUTPUT


def _transcript_parts(outcome: Execution) -> Iterator[str]:
    yield outcome.stdout
    yield outcome.value or ""
    yield outcome.stderr
    if outcome.ok:
        return
    line = outcome.exception_line or outcome.exception_type
    if line is None:
        yield f"[{outcome.status.value}]"
    elif line not in outcome.stderr:  # sys.exit has no traceback
        yield line


@runtime_checkable
class Interpreter(Protocol):
    """An interpreter of code that a model wrote, such as `SandboxPool`."""

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """Run `code` from a fresh state. Equal code and seed have equal outcomes, except timeouts.

        Raises:
            SandboxError: The host failed. Errors of the code never raise.
        """
        ...


class InterpreterSession(Protocol):
    """A program whose parts run one after the other and share their state."""

    async def run_async(self, code: str) -> Execution:
        """Run the next part. An interrupted part keeps the effects of its complete statements, or none.

        Raises:
            SandboxError: The host failed.
        """
        ...

    def fork(self) -> "InterpreterSession":
        """Return a new session that continues from the current state."""
        ...


@runtime_checkable
class StatefulInterpreter(Interpreter, Protocol):
    """An interpreter that can keep state between runs, such as `SandboxPool`."""

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """Return a new session."""
        ...
