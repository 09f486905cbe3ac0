"""Types of the native module: `crates/sandbox/binding`."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NoReturn, final

__all__ = [
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxRequest",
    "SandboxRun",
    "SandboxState",
    "SandboxWorkers",
    "prepare_sandbox",
    "sandbox_files",
    "serve_sandbox",
]

@final
class SandboxState:
    """The state of a session after a run: a value, which several runs may continue."""

    def __new__(cls) -> SandboxState:
        """The state before the first run."""

    def __len__(self) -> int:
        """Return the size of the state in bytes."""

@final
class SandboxLimits:
    """The limits of one run. By default, the limits of the pool.

    The fields are those of `torl_sandbox.SandboxPool`.
    """

    def __new__(
        cls,
        *,
        cpu_seconds: float | None = None,
        wall_seconds: float | None = None,
        memory_bytes: int | None = None,
        output_bytes: int | None = None,
        files_bytes: int | None = None,
    ) -> SandboxLimits:
        """Create limits. Raises `ValueError` for invalid times."""

    def lowered(self, *, cpu_seconds: float = ..., memory_bytes: int = ...) -> SandboxLimits:
        """Return the limits, lowered to at most this CPU time and memory."""
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def wall_seconds(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def files_bytes(self) -> int: ...

@final
class SandboxOutcome:
    """The outcome of one run: the fields of `torl_sandbox.Execution`, and the state of the session after the run."""

    @property
    def status(self) -> str: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...
    @property
    def exception_type(self) -> str | None: ...
    @property
    def exception_line(self) -> str | None: ...
    @property
    def traceback(self) -> str | None: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def wall_seconds(self) -> float: ...
    @property
    def peak_memory_bytes(self) -> int: ...
    @property
    def value(self) -> str | None: ...
    @property
    def files(self) -> list[tuple[bytes, bytes]]:
        """Pairs of path and content."""
    @property
    def state(self) -> SandboxState | None:
        """The session state after the run; None for a run without a session, or one that was stopped."""

@final
class SandboxRequest:
    """A run to submit."""

    def __new__(
        cls, code: bytes, input: Mapping[str, object], limits: SandboxLimits, state: SandboxState | None
    ) -> SandboxRequest:
        """`input` is a `torl_sandbox.options.RunInput`; `state` is the state of its session, if it has one.

        Raises `ValueError` for oversized inputs and invalid files.
        """

@final
class SandboxRun:
    """A run that was submitted."""

    def cancel(self) -> bool:
        """Take the run out of the queue, or kill its worker. False when it was over already."""

@final
class SandboxWorkers:
    """Worker processes with the guest loaded. `torl_sandbox.SandboxPool` wraps this class."""

    def __new__(
        cls,
        command: Sequence[str],
        cache: str | PathLike[str],
        workers: int,
        reuse_guest: bool,
        verify_every: int,
        result_cache_bytes: int,
    ) -> SandboxWorkers:
        """Start `workers` processes by `command`, which must call `serve_sandbox`; wait until all have run code.

        Raises `SandboxError` when the guest in `cache` is missing or damaged, or a worker does not start.
        """

    def run(self, request: SandboxRequest) -> SandboxOutcome:
        """Run and wait; the exception of a signal handler cancels the run.

        Raises `SandboxError`.
        """

    def run_batch(self, requests: Sequence[SandboxRequest]) -> list[SandboxOutcome]:
        """Run all and wait for all, in order. Raises `SandboxError`; the others are cancelled then."""

    def submit(
        self, request: SandboxRequest, callback: Callable[[SandboxOutcome | None, Exception | None], object]
    ) -> SandboxRun:
        """Put a run at the end of the queue. `callback(outcome, error)` is called once, on another thread or here.

        It gets an outcome, or a `SandboxError`, or neither when the run was cancelled.
        """

    def statistics(self) -> dict[str, int]:
        """Counts by outcome, `shared`, `cancelled`, `retried`, `workers_replaced`, `failed_starts`, and two of now:
        `queued` and `running`.

        Raises `SandboxError` in a fork of the process that made the pool, as the four below do.
        """

    def latency(self) -> list[tuple[float, int]]:
        """`(upper bound in seconds, runs)` of every bucket up to the last that has any."""

    def fresh_guest_reason(self) -> str | None:
        """Return the reason that every run gets a fresh guest; None if guests are reused."""

    def confinement(self) -> tuple[int | None, bool, list[str]]:
        """The fields of `torl_sandbox.Confinement`, in its order."""

    def processes(self) -> list[int]:
        """The process ids of the workers, those that start included."""

    def close(self) -> None:
        """Kill the workers. Runs that are queued or running end in a `SandboxError`."""

def prepare_sandbox(
    command: Sequence[str],
    artifacts: str | PathLike[str],
    cache: str | PathLike[str],
    progress: Callable[[str, float], object],
) -> None:
    """Prepare the guest in a child process, unless `cache` holds it. `progress(stage, fraction done)`.

    Raises `SandboxError`, or an exception of `progress`, which cancels the preparation.
    """

def sandbox_files(cache: str | PathLike[str]) -> list[Path]:
    """Return the paths of this build's guest in `cache`: module, memory image, standard library."""

def serve_sandbox() -> NoReturn:
    """Turn this process into a sandbox worker on the socket that is its standard input."""
