"""What a run takes besides its code, and how the core is told."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

MAXIMUM_SEED = 2**64
MAXIMUM_STDIN = 256 << 20


class PartOptions(TypedDict, total=False):
    """What every method that runs code takes besides the code. All of it is optional."""

    stdin: str | bytes
    """All that standard input holds. Default: nothing."""
    files: Mapping[str, str | bytes]
    """What is put into the directory the run starts in: paths relative to it, such as "sub/data.csv", and contents."""
    return_files: bool
    """Whether `Execution.files` holds every file below that directory that the run made or changed. Default: no."""
    value: bool
    """Whether `Execution.value` is the `repr` of the value of the last statement. Default: no."""


class RunOptions(PartOptions, total=False):
    """The options of a run that is for itself."""

    seed: int
    """Of everything random in the run: `random`, `numpy.random`, `os.urandom`. Default 0."""


class RunInput(TypedDict):
    """What a run is given besides its code, as the core takes it."""

    seed: int
    stdin: bytes
    files: Sequence[tuple[str, bytes]]
    return_files: bool
    value: bool


def core_arguments(
    *,
    seed: int = 0,
    stdin: str | bytes = b"",
    files: Mapping[str, str | bytes] | None = None,
    return_files: bool = False,
    value: bool = False,
) -> RunInput:
    """The options as `torl._core.SandboxRequest` takes them.

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
    }


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
