"""Options of runs, and their conversion for the core."""

import math
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import TypedDict

import torl_sandbox._core as _core

MAXIMUM_SEED = 2**64
MAXIMUM_CALLER = 2**64
MAXIMUM_STDIN = 256 << 20
MAXIMUM_CODE = 16 << 20
MINIMUM_MEMORY = 192 << 20  # the interpreter alone has 177 MiB
MAXIMUM_MEMORY = 1 << 32


class CellOptions(TypedDict, total=False):
    """Options of every method that runs code. All are optional."""

    stdin: str | bytes
    """Content of standard input. The default is empty."""
    files: Mapping[str, str | bytes]
    """Files in the working directory: relative paths, such as "sub/data.csv", and contents."""
    return_files: bool
    """Whether `Execution.files` contains all files that the run created or changed there. The default is False."""
    value: bool
    """Whether `Execution.value` is the `repr` of the last statement's value. The default is False."""
    cpu_seconds: float
    """CPU time of the run in seconds, if less than the pool's."""


class RunOptions(CellOptions, total=False):
    """Options of a run without a session."""

    seed: int
    """Random seed of `random`, `numpy.random` and `os.urandom`. The default is 0."""
    memory_bytes: int
    """Memory of the run, including the interpreter's own 177 MiB, if less than the pool's. At least 192 MiB."""
    caller: Hashable
    """Caller of the run. Callers take turns, so one caller with a long queue does not delay others. The default
    is the calling thread, which for coroutines is the thread of their event loop."""


class RunInput(TypedDict):
    """Input of a run in addition to its code, as the core receives it."""

    seed: int
    stdin: bytes
    files: Sequence[tuple[str, bytes]]
    return_files: bool
    value: bool
    caller: int


def core_arguments(options: RunOptions) -> RunInput:
    """Convert options for `torl_sandbox._core.SandboxRequest`, except the limits, which `run_limits` converts.

    Raises:
        TypeError: An option is unknown.
        ValueError: `stdin` is too large.
    """
    if unknown := options.keys() - RunOptions.__optional_keys__:
        raise TypeError(f"unknown option {min(unknown)!r} of a run")
    stdin = _bytes(options.get("stdin", b""))
    if len(stdin) > MAXIMUM_STDIN:
        raise ValueError(f"stdin must be at most {MAXIMUM_STDIN} bytes, got {len(stdin)}")
    caller = options.get("caller")
    return {
        "seed": options.get("seed", 0) % MAXIMUM_SEED,
        "stdin": stdin,
        "files": [(path, _bytes(content)) for path, content in (options.get("files") or {}).items()],
        "return_files": options.get("return_files", False),
        "value": options.get("value", False),
        "caller": (threading.get_ident() if caller is None else hash(caller)) % MAXIMUM_CALLER,
    }


def run_limits(limits: _core.SandboxLimits, options: RunOptions, cpu_seconds: float) -> _core.SandboxLimits:
    """Return the limits of a run: the minimum of the pool's limits, the options and a session's remaining time.

    Raises:
        ValueError: A limit is out of range.
    """
    run_seconds = options.get("cpu_seconds", math.inf)
    run_bytes = options.get("memory_bytes", limits.memory_bytes)
    if not run_seconds > 0:
        raise ValueError(f"cpu_seconds must be a positive number of seconds, got {run_seconds}")
    check_memory(run_bytes)
    return limits.lowered(cpu_seconds=min(run_seconds, cpu_seconds), memory_bytes=min(run_bytes, limits.memory_bytes))


def check_memory(memory_bytes: int) -> None:
    """Check a memory limit.

    Raises:
        ValueError: The limit is below the interpreter's own memory or above its address space.
    """
    if not MINIMUM_MEMORY <= memory_bytes <= MAXIMUM_MEMORY:
        raise ValueError(
            f"memory_bytes must be between {MINIMUM_MEMORY >> 20} MiB, of which the interpreter takes 176, and "
            f"{MAXIMUM_MEMORY >> 30} GiB, got {memory_bytes} bytes"
        )


def source_bytes(code: str) -> bytes:
    """Encode code for the core.

    Raises:
        TypeError: `code` is not a string.
        ValueError: `code` is too long.
    """
    if not isinstance(code, str):
        raise TypeError(f"code must be a str, got {type(code).__name__}")
    if len(code) > MAXIMUM_CODE:
        raise ValueError(f"code must be at most {MAXIMUM_CODE} bytes, got {len(code)} characters")
    # The guest reports lone surrogates as a SyntaxError, as any invalid UTF-8.
    return code.encode("utf-8", "surrogatepass")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
