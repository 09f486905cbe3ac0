"""Checkpoint directories that are complete or absent. No torch.

    RUN/checkpoints/step_000020/
        manifest.json      sizes and hashes of everything else; written last
        controller.json    what the controller wants back: step, policy version, data position, ...
        learner/           each rank's share of the optimizer's state, and its random generators

A checkpoint is written under a temporary name in the same directory, flushed to the disk, and renamed. A crash leaves
a `.partial-*` directory, which counts as nothing and is removed by the next write.
"""

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torl.errors import CheckpointError

MANIFEST = "manifest.json"
CONTROLLER = "controller.json"
LEARNER = "learner"  # subdirectory of the ranks' files

_FORMAT = 2
_NAME = re.compile(r"step_(\d{6,})")
_PARTIAL = ".partial-"
_HASH_THREADS = 4
_log = logging.getLogger(__name__)


def checkpoint_path(run_directory: Path, step: int) -> Path:
    """Where the checkpoint after `step` optimizer steps belongs."""
    return run_directory / "checkpoints" / f"step_{step:06d}"


@contextmanager
def open_checkpoint(
    directory: Path,
    controller_state: dict[str, Any],
    compatibility: dict[str, Any],
    described: Mapping[str, dict[str, Any]] | None = None,
) -> Iterator[Path]:
    """A temporary directory that becomes `directory` when the block ends well, and disappears when it does not.

    `controller_state` (JSON) is returned by `read_controller_state`. `facts` (JSON) go into the manifest: what has
    to fit when the checkpoint is loaded. `described` has, at the end of the block, what the manifest says of files that
    whoever wrote them has flushed and hashed. A complete checkpoint that is already there is replaced.

    Raises:
        CheckpointError: something could not be written; what was there before is untouched.
    """
    partial = directory.with_name(f"{_PARTIAL}{directory.name}-{os.getpid()}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        for leftover in directory.parent.glob(f"{_PARTIAL}{directory.name}-*"):
            shutil.rmtree(leftover)
        partial.mkdir()
        yield partial
        _write_json(partial / CONTROLLER, controller_state)
        known = described or {}
        files = {name: known.get(name) or _describe_and_flush(partial / name) for name in _file_names(partial)}
        _write_json(partial / MANIFEST, {"format": _FORMAT, "facts": compatibility, "files": files})
        _flush(partial / MANIFEST)
        for written in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            _flush(written)
        if directory.exists():
            shutil.rmtree(directory)
        partial.rename(directory)
        _flush(directory.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(_explain(directory, error)) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def verify_checkpoint(directory: Path, *, hashes: bool = True) -> dict[str, Any]:
    """Compare every file with the manifest, its content too if `hashes`, and return its facts.

    Raises:
        CheckpointError: a file is missing, has another size or another content; it names the file.
    """
    manifest = _read_manifest(directory)
    files: dict[str, Any] = manifest["files"]
    for name, expected in files.items():
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"checkpoint {directory}: {name} is missing")
        if path.stat().st_size != expected["bytes"]:
            raise CheckpointError(
                f"checkpoint {directory}: {name} has {path.stat().st_size} bytes, not {expected['bytes']}"
            )
    with ThreadPoolExecutor(_HASH_THREADS) as threads:
        found = threads.map(lambda name: _sha256(directory / name), files) if hashes else []
        for (name, expected), actual in zip(files.items(), found, strict=hashes):
            if actual != expected["sha256"]:
                raise CheckpointError(f"checkpoint {directory}: the content of {name} has changed since it was written")
    facts: dict[str, Any] = manifest["facts"]
    return facts


def read_controller_state(directory: Path) -> dict[str, Any]:
    """What the controller gave to the checkpoint."""
    try:
        state: dict[str, Any] = json.loads((directory / CONTROLLER).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {directory}: {CONTROLLER} cannot be read: {error}") from error
    return state


def latest_checkpoint(run_directory: Path) -> Path | None:
    """The newest checkpoint that is whole; a damaged one is skipped with a warning. None if there is none at all.

    Raises:
        CheckpointError: there are checkpoints and all of them are damaged; it says what is wrong with each.
    """
    damaged: list[CheckpointError] = []
    for directory in reversed(_checkpoints(run_directory)):
        try:
            verify_checkpoint(directory)
        except CheckpointError as error:
            damaged.append(error)
            continue
        for reason in damaged:
            _log.warning("passing over a damaged checkpoint: %s", reason)
        return directory
    if damaged:
        reasons = "".join(f"\n  {reason}" for reason in damaged)
        raise CheckpointError(
            f"{run_directory} has no checkpoint that can be used; put a whole one back, or start again in another "
            f"directory:{reasons}"
        )
    return None


def prune_checkpoints(run_directory: Path, keep: int, values: Mapping[int, float] | None = None) -> list[Path]:
    """Remove all but the newest `keep` checkpoints and the best by `values` of steps; returns what was removed."""
    if keep < 1:
        raise ValueError(f"keep is {keep}: the newest checkpoint is always kept")
    checkpoints = _checkpoints(run_directory)
    valued = {path: values[_step_of(path)] for path in checkpoints if values and _step_of(path) in values}
    best = max(reversed(checkpoints), key=lambda path: valued.get(path, -math.inf)) if valued else None
    removed = [path for path in checkpoints[:-keep] if path != best]
    for directory in removed:
        # Without its manifest a directory is no checkpoint: a crash in the middle leaves none that looks whole.
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory)
    return removed


def _checkpoints(run_directory: Path) -> list[Path]:
    parent = run_directory / "checkpoints"
    checkpoints = [path for path in parent.iterdir() if _NAME.fullmatch(path.name)] if parent.is_dir() else []
    return sorted(checkpoints, key=_step_of)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def _read_manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_bytes())
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"checkpoint {directory} has format {manifest['format']}; this torl reads {_FORMAT}")
        if not {"facts", "files"} <= manifest.keys():
            raise ValueError("it lacks entries")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {directory}: {MANIFEST} cannot be read: {error}") from error
    return manifest


def _file_names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _describe_and_flush(path: Path) -> dict[str, Any]:
    _flush(path)
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(directory: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"checkpoint {directory} could not be written: the disk is full; the previous checkpoint is kept"
    return f"checkpoint {directory} could not be written: {error}; the previous checkpoint is kept"
