"""The receipt of a run: a hash chain over its records, written as the run writes them.

`receipt.jsonl` has a line for each start, for each row of `metrics.jsonl`, and for the end of the run:

    {"event": "start" | "row" | "end", "number": position of the line, "step": step of the row,
     "files": {path: {"bytes", "sha256"}}   files written since the last line; a later entry replaces an earlier one
     "row": SHA-256 of the line in metrics.jsonl
     "content": {kind: SHA-256}             content of the step's trajectories (`torl.run.records.content`), or examples
     "learner": SHA-256                     the learner's metrics without times
     "weights": digest of the policy's weights after the step (`Learner.weight_digest`)
     "previous": hash of the line before, "hash": SHA-256 of the line without this entry}

A start also has versions, and of each source of problems or examples the hash of the rows that it has read and the
setting that names it ("sources"). Its line is written before the files of its configuration, of which it has the
hashes, and that of the configuration that they replace ("replaces"): a run that is killed between has the latter.

The hash of the last line commits to everything before it. A run that resumes removes the lines of the steps that it
plays again, and its start names the hash of the last removed line.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, Self

from torl.base.errors import RecordError
from torl.base.inputs import open_file
from torl.run.records.content import canonical_json
from torl.run.records.files import (
    CONFIG_FILE,
    EXPORT_DIRECTORY,
    METRICS_FILE,
    SUMMARY_FILE,
    append_atomically,
    atomic_write,
)
from torl.run.records.reading import read_rows

RECEIPT_FILE: Final = "receipt.jsonl"
FIRST: Final = "0" * 64
"""The `previous` of the first line."""
CHECKPOINTS: Final = "checkpoints/*/manifest.json"
"""The files of checkpoints in a receipt: a manifest has the hashes of the others."""
CONFIGS: Final = "config*.toml"
"""The files of configurations."""


class Receipt:
    """Writes the receipt of a run."""

    def __init__(self, run_directory: Path, lines: list[dict[str, Any]]) -> None:
        """Continue the chain after `lines`; use `start`."""
        self._directory = run_directory
        self._manifests = {name: entry for line in lines for name, entry in line["files"].items()}
        self._last: str = lines[-1]["hash"] if lines else FIRST
        self._number = len(lines)

    @classmethod
    def start(
        cls,
        run_directory: Path,
        resume_step: int | None,
        facts: Mapping[str, Any],
        configs: Mapping[Path, bytes] | None = None,
    ) -> Self:
        """Write the line of a start.

        Args:
            run_directory: Directory of the run.
            resume_step: First step that the run plays again: its lines and later ones are removed. None for a new run.
            facts: Facts of this start, such as versions of packages.
            configs: Files of its configuration, which are written next (`run_directory.config_files`).

        Raises:
            RecordError: The receipt is damaged, or cannot be written.
        """
        lines = read_receipt(run_directory)
        kept = len(lines)
        if resume_step is not None:
            again = (line["number"] for line in lines if line["event"] != "start" and line["step"] >= resume_step)
            kept = min(again, default=len(lines))
        receipt = cls(run_directory, lines[:kept])
        entries = {path.name: file_entry(path) for path in sorted(run_directory.glob(CONFIGS))}
        removed = {"removed": lines[-1]["hash"]} if kept < len(lines) else {}
        replaces = {"replaces": entries[CONFIG_FILE]} if configs and CONFIG_FILE in entries else {}
        entries |= {path.name: _entry(len(data), hashlib.sha256(data)) for path, data in (configs or {}).items()}
        line = receipt._next("start", resume_step or 0, entries, {**facts, **removed, **replaces})
        with atomic_write(run_directory / RECEIPT_FILE) as file:
            file.writelines(canonical_json(each) + b"\n" for each in (*lines[:kept], line))
        return receipt

    def append(self, event: str, step: int, files: Iterable[Path], **facts: Any) -> str:
        """Append a line and return its hash.

        Args:
            event: Event of the line.
            step: Step of the line.
            files: Files that were written since the last line. New manifests of checkpoints are added.
            facts: Further entries of the line (JSON).

        Raises:
            RecordError: A file cannot be read, or the receipt cannot be written.
        """
        entries = {str(path.relative_to(self._directory)): file_entry(path) for path in files}
        line = self._next(event, step, entries, facts)
        append_atomically(self._directory / RECEIPT_FILE, canonical_json(line) + b"\n")
        return self._last

    def _next(self, event: str, step: int, files: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the next line of the chain."""
        entries = {**files, **self._new_manifests()}
        line = {"event": event, "number": self._number, "step": step, "files": entries, "previous": self._last, **facts}
        line["hash"] = self._last = line_hash(line)
        self._number += 1
        return line

    def _new_manifests(self) -> dict[str, dict[str, Any]]:
        """Return the entries of checkpoints that were completed since the last line."""
        found = {str(path.relative_to(self._directory)): path for path in self._directory.glob(CHECKPOINTS)}
        new: dict[str, dict[str, Any]] = {}
        for name, path in found.items():
            try:
                entry = file_entry(path)
            except RecordError:
                continue  # pruned at the same time
            if self._manifests.get(name) != entry:
                new[name] = self._manifests[name] = entry
        return new


def end_receipt(run_directory: Path, step: int) -> str | None:
    """Append the last line of a finished run, with its summary and its exported model, and return its hash.

    Returns None for a run without a receipt.

    Raises:
        RecordError: A file cannot be read, or the receipt cannot be written.
    """
    if not (lines := read_receipt(run_directory)):
        return None
    receipt = Receipt(run_directory, lines)
    model = (path for path in sorted((run_directory / EXPORT_DIRECTORY).rglob("*")) if path.is_file())
    return receipt.append("end", step, [run_directory / SUMMARY_FILE, *model])


def find_missing(run_directory: Path, step: int) -> tuple[list[str], int]:
    """Return the missing files of the steps before a step, and the number of missing or changed rows of metrics.

    Args:
        run_directory: Directory of the run.
        step: First step that the run plays again.

    Returns:
        The files that the receipt has and the directory has not, and the number of rows of metrics that are missing or
        have changed. A run without a receipt has neither.

    Raises:
        RecordError: The receipt is damaged, or the metrics cannot be read.
    """
    lines = [line for line in read_receipt(run_directory) if line["event"] == "row" and line["step"] < step]
    names = dict.fromkeys(name for line in lines for name in line["files"] if not PurePath(name).match(CHECKPOINTS))
    missing = [name for name in names if not (run_directory / name).is_file()]
    path = run_directory / METRICS_FILE
    try:
        rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    found = {hashlib.sha256(row).hexdigest() for row in rows}
    return missing, sum(line["row"] not in found for line in lines if "row" in line)


def read_receipt(run_directory: Path) -> list[dict[str, Any]]:
    """Return the lines of a receipt, without an unfinished last one; empty for a run without a receipt.

    Raises:
        RecordError: A line is damaged.
    """
    path = run_directory / RECEIPT_FILE
    if not os.path.lexists(path):
        return []
    lines = list(read_rows(path))
    for number, line in enumerate(lines):
        kinds = {"event": str, "number": int, "step": int, "files": dict, "previous": str, "hash": str}
        if wrong := [name for name, kind in kinds.items() if not isinstance(line.get(name), kind)]:
            raise RecordError(f"{path}, line {number + 1}: damaged: {wrong[0]}")
    return lines


def earlier_configs(start: Mapping[str, Any]) -> int:
    """Return the number of configurations before that of a start, in their order."""
    return sum(PurePath(name).match(CONFIGS) for name in start["files"]) - 1


def line_hash(line: Mapping[str, Any]) -> str:
    """Return the hash of a line: of all its entries except "hash"."""
    return hashlib.sha256(canonical_json({name: each for name, each in line.items() if name != "hash"})).hexdigest()


def file_entry(path: Path) -> dict[str, Any]:
    """Return the size and the hash of a file.

    Raises:
        RecordError: The file cannot be read.
    """
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return _entry(file.tell(), digest)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def _entry(size: int, digest: "hashlib._Hash") -> dict[str, Any]:
    return {"bytes": size, "sha256": digest.hexdigest()}


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value as canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
