"""Checkpoint directories that are complete or absent. No torch.

    RUN/checkpoints/step_000020/
        manifest.json      sizes and hashes of all other files; written last
        controller.json    state of the controller: step, policy version, data position, ...
        learner/           part of the optimizer state and random generators of each rank

A checkpoint is written under a temporary name in the same directory, flushed to disk, and renamed. A crash leaves
`.partial-*` directories, which are ignored, and removed by `clean_checkpoints` at a resume or the next write. Only one
is whole: a checkpoint that was being replaced, which is renamed back.
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

from torl.base.errors import CheckpointError
from torl.base.inputs import open_file, parse_json, read_file, reason

MANIFEST = "manifest.json"
CONTROLLER = "controller.json"
LEARNER = "learner"
"""Subdirectory of the ranks' files."""

_FORMAT = 2
_NAME = re.compile(r"step_(\d{6,})")
_PARTIAL = ".partial-"
_REPLACED = "-replaced"
_HASH_THREADS = 4
_log = logging.getLogger(__name__)


def checkpoint_path(run_directory: Path, step: int) -> Path:
    """Return the directory of the checkpoint after `step` training steps."""
    return run_directory / "checkpoints" / f"step_{step:06d}"


@contextmanager
def open_checkpoint(
    directory: Path,
    controller_state: dict[str, Any],
    compatibility: dict[str, Any],
    file_entries: Mapping[str, dict[str, Any]] | None = None,
) -> Iterator[Path]:
    """Yield a temporary directory that becomes `directory` when the block succeeds, and is removed when it raises.

    An existing checkpoint is replaced.

    Args:
        directory: Directory of the checkpoint.
        controller_state: State that `read_controller_state` returns (JSON).
        compatibility: Properties that a learner must share to load the checkpoint (JSON).
        file_entries: Manifest entries of files that are already flushed and hashed. Read after the block.

    Raises:
        CheckpointError: A file could not be written. An existing checkpoint is unchanged.
    """
    partial = directory.with_name(f"{_PARTIAL}{directory.name}-{os.getpid()}")
    replaced = directory.with_name(f"{_PARTIAL}{directory.name}{_REPLACED}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        clean_checkpoints(directory.parent.parent)
        partial.mkdir()
        yield partial
        _write_json(partial / CONTROLLER, controller_state)
        known = file_entries or {}
        files = {name: known.get(name) or _flushed_entry(partial / name) for name in _file_names(partial)}
        _write_json(partial / MANIFEST, {"format": _FORMAT, "facts": compatibility, "files": files})
        _flush(partial / MANIFEST)
        for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            _flush(folder)
        _replace(directory, partial, replaced)
        _flush(directory.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(_explain(directory, error)) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _replace(directory: Path, partial: Path, replaced: Path) -> None:
    """Rename `partial` to `directory`, and an existing directory to `replaced`, which is undone if that fails."""
    if directory.exists():
        directory.rename(replaced)
    try:
        partial.rename(directory)
    except BaseException:
        if replaced.exists():
            replaced.rename(directory)
        raise


def clean_checkpoints(run_directory: Path) -> None:
    """Restore the checkpoint that a killed run was replacing, and remove what else it left. Call it between writes.

    Raises:
        CheckpointError: The directory cannot be changed.
    """
    for leftover in (run_directory / "checkpoints").glob(f"{_PARTIAL}*"):
        directory = leftover.with_name(leftover.name.removeprefix(_PARTIAL).removesuffix(_REPLACED))
        try:
            if leftover.name.endswith(_REPLACED) and not directory.exists():
                leftover.rename(directory)
            else:
                shutil.rmtree(leftover)
        except OSError as error:
            raise CheckpointError(f"{leftover}, which a killed run left, cannot be removed: {error}") from error


def verify_checkpoint(directory: Path, *, hashes: bool = True) -> dict[str, Any]:
    """Compare every file with the manifest, and return the compatibility properties in the manifest.

    Args:
        directory: Directory of the checkpoint.
        hashes: Whether the contents of files are compared as well, in addition to their sizes.

    Raises:
        CheckpointError: A file is missing, or its size or content differs. The error names the file.
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
        digests = threads.map(lambda name: _sha256(directory / name), files) if hashes else []
        for (name, expected), actual in zip(files.items(), digests, strict=hashes):
            if actual != expected["sha256"]:
                raise CheckpointError(f"checkpoint {directory}: the content of {name} has changed since it was written")
    facts: dict[str, Any] = manifest["facts"]
    return facts


def unknown_files(directory: Path) -> list[str]:
    """Return the files in a checkpoint that its manifest does not have, relative to it.

    Raises:
        CheckpointError: The manifest cannot be read.
    """
    return sorted({*_file_names(directory)} - {MANIFEST, *_read_manifest(directory)["files"]})


def read_controller_state(directory: Path) -> dict[str, Any]:
    """Return the controller's state in a checkpoint.

    Raises:
        CheckpointError: The file cannot be read.
    """
    try:
        state: dict[str, Any] = parse_json(read_file(directory / CONTROLLER))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {directory}: {CONTROLLER} cannot be read: {reason(error)}") from error
    return state


def checkpoint_steps(run_directory: Path) -> list[int]:
    """Return the steps of all checkpoints, intact or not, in ascending order."""
    return list(map(_step_of, _checkpoints(run_directory)))


def latest_checkpoint(run_directory: Path) -> Path | None:
    """Return the newest intact checkpoint, or None if there is no checkpoint. Warns of damaged ones.

    Raises:
        CheckpointError: All checkpoints are damaged. The error lists the damages.
    """
    damaged: list[CheckpointError] = []
    for directory in reversed(_checkpoints(run_directory)):
        try:
            verify_checkpoint(directory)
        except CheckpointError as error:
            damaged.append(error)
            continue
        for each in damaged:
            _log.warning("skipping a damaged checkpoint: %s", each)
        return directory
    if damaged:
        reasons = "".join(f"\n  {reason}" for reason in damaged)
        raise CheckpointError(
            f"{run_directory} has no intact checkpoint; restore one from a backup, or start again in another "
            f"directory:{reasons}"
        )
    return None


def prune_checkpoints(
    run_directory: Path, step: int, keep: int, values: Mapping[int, float] | None = None
) -> list[Path]:
    """Remove old checkpoints and return their directories.

    Later checkpoints than `step` are removed too. They were damaged when the run resumed, or it had resumed from them.

    Args:
        run_directory: Directory of the run.
        step: Step of the checkpoint that was just written.
        keep: Number of checkpoints up to `step` to keep.
        values: Metric of some steps. The checkpoint with the highest value is kept.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}: the newest checkpoint is always kept")
    everything = _checkpoints(run_directory)
    checkpoints = [path for path in everything if _step_of(path) <= step]
    valued = {path: values[_step_of(path)] for path in checkpoints if values and _step_of(path) in values}
    best = max(reversed(checkpoints), key=lambda path: valued.get(path, -math.inf)) if valued else None
    removed = [path for path in everything if path not in checkpoints[-keep:] and path != best]
    for directory in removed:
        if directory.is_symlink():  # a replay reads the checkpoints of another run
            directory.unlink()
            continue
        # A directory without a manifest is not a checkpoint: a crash between these lines leaves no damaged one.
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
        manifest: dict[str, Any] = parse_json(read_file(directory / MANIFEST))
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"checkpoint {directory} has format {manifest['format']}; this torl reads {_FORMAT}")
        if not {"facts", "files"} <= manifest.keys():
            raise ValueError("entries are missing")
        for name, entry in manifest["files"].items():
            if not {"bytes", "sha256"} <= entry.keys():
                raise ValueError(f"the entry of {name} is incomplete")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {directory}: {MANIFEST} cannot be read: {reason(error)}") from error
    return manifest


def _file_names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _flushed_entry(path: Path) -> dict[str, Any]:
    _flush(path)
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with open_file(path) as file:
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
