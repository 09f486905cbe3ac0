"""What a run takes besides its code, and how the core is told."""

import math
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import TypedDict

import torl._core as _core

MAXIMUM_SEED = 2**64
MAXIMUM_CALLER = 2**64
MAXIMUM_STDIN = 256 << 20
MAXIMUM_CODE = 16 << 20
MINIMUM_MEMORY = 192 << 20  # the interpreter alone has 176 MiB
MAXIMUM_MEMORY = 1 << 32


class CellOptions(TypedDict, total=False):
    """What every method that runs code takes besides the code. All of it is optional."""

    stdin: str | bytes
    """All that standard input holds. Default: nothing."""
    files: Mapping[str, str | bytes]
    """What is put into the directory the run starts in: paths relative to it, such as "sub/data.csv", and contents."""
    return_files: bool
    """Whether `Execution.files` holds every file below that directory that the run made or changed. Default: no."""
    value: bool
    """Whether `Execution.value` is the `repr` of the value of the last statement. Default: no."""
    cpu_seconds: float
    """CPU time of this run, where that is less than the pool's."""


class RunOptions(CellOptions, total=False):
    """The options of a run that is for itself."""

    seed: int
    """Of everything random in the run: `random`, `numpy.random`, `os.urandom`. Default 0."""
    memory_bytes: int
    """Memory of this run, the interpreter's own 176 MiB included, if less than the pool's; at least 192 MiB."""
    caller: Hashable
    """Who asks. Callers take turns: one with many runs that wait does not hold up another's. Default: the calling
    thread, which for coroutines is that of their loop."""


class RunInput(TypedDict):
    """What a run is given besides its code, as the core takes it."""

    seed: int
    stdin: bytes
    files: Sequence[tuple[str, bytes]]
    return_files: bool
    value: bool
    caller: int


def core_arguments(
    *,
    seed: int = 0,
    stdin: str | bytes = b"",
    files: Mapping[str, str | bytes] | None = None,
    return_files: bool = False,
    value: bool = False,
    cpu_seconds: float | None = None,
    memory_bytes: int | None = None,
    caller: Hashable = None,
) -> RunInput:
    """The options as `torl._core.SandboxRequest` takes them, less those that `run_limits` reads.

    Raises:
        ValueError: Too much input.
    """
    given = _bytes(stdin)
    if len(given) > MAXIMUM_STDIN:
        raise ValueError(f"stdin must be at most {MAXIMUM_STDIN} bytes, not {len(given)}")
    return {
        "seed": seed % MAXIMUM_SEED,
        "stdin": given,
        "files": [(path, _bytes(content)) for path, content in (files or {}).items()],
        "return_files": return_files,
        "value": value,
        "caller": (threading.get_ident() if caller is None else hash(caller)) % MAXIMUM_CALLER,
    }


def run_limits(limits: _core.SandboxLimits, options: RunOptions, cpu_seconds: float) -> _core.SandboxLimits:
    """The limits of one run: those of the pool, where the options or what is left of a session do not say less.

    Raises:
        ValueError: A limit that is none.
    """
    own_seconds = options.get("cpu_seconds", math.inf)
    own_bytes = options.get("memory_bytes", limits.memory_bytes)
    if not own_seconds > 0:
        raise ValueError(f"cpu_seconds must be a positive number of seconds, not {own_seconds}")
    check_memory(own_bytes)
    return limits.lowered(cpu_seconds=min(own_seconds, cpu_seconds), memory_bytes=min(own_bytes, limits.memory_bytes))


def check_memory(memory_bytes: int) -> None:
    """Whether a run can have so much memory, and no more.

    Raises:
        ValueError: it is less than the interpreter takes, or more than it can address.
    """
    if not MINIMUM_MEMORY <= memory_bytes <= MAXIMUM_MEMORY:
        raise ValueError(
            f"memory_bytes must be between {MINIMUM_MEMORY >> 20} MiB, of which the interpreter takes 176, and "
            f"{MAXIMUM_MEMORY >> 30} GiB, not {memory_bytes} bytes"
        )


def source_bytes(code: str) -> bytes:
    """Code as the core takes it.

    Raises:
        TypeError: Code that is no string.
        ValueError: Too much of it.
    """
    if not isinstance(code, str):
        raise TypeError(f"code must be a str, not {type(code).__name__}")
    if len(code) > MAXIMUM_CODE:
        raise ValueError(f"code must be at most {MAXIMUM_CODE} bytes, not {len(code)} characters")
    # Lone surrogates are no source text: the guest answers them with a SyntaxError, as for any invalid UTF-8.
    return code.encode("utf-8", "surrogatepass")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
