"""The records of a run against its receipt: the chain, and every byte of the files in it. Nothing runs."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from torl.base.errors import CheckpointError, RecordError
from torl.base.inputs import parse_json, read_file
from torl.learner.checkpoint.directory import unknown_files
from torl.run.records.content import canonical_json
from torl.run.records.files import (
    CONFIG_FILE,
    EXAMPLES_FILE,
    EXPORT_DIRECTORY,
    METRICS_FILE,
    SUMMARY_FILE,
    TOKEN_DIRECTORY,
    TRAJECTORY_DIRECTORY,
)
from torl.run.records.reading import read_rows
from torl.run.records.receipt import (
    CHECKPOINTS,
    CONFIGS,
    FIRST,
    RECEIPT_FILE,
    digest_of,
    file_entry,
    line_hash,
    read_receipt,
)
from torl_lab.audit.checks import Check

_OF_STEPS: Final = (f"{TRAJECTORY_DIRECTORY}/*", f"{TOKEN_DIRECTORY}/*", CHECKPOINTS, CONFIGS)
"""Patterns of the files that a run writes with its steps."""


@dataclass(slots=True)
class ReceiptAudit:
    """The result of the check of a receipt.

    Attributes:
        head: Hash of the last line.
        wrong: Mismatches.
        notes: Parts that were not checked.
        calls: Number of calls, and of those that were run again.
        graded: Number of trajectories that were graded again.
        not_trusted: A line for each thing that the run's files name and that was left out for lack of trust.
        compared: Number of files and of rows of metrics that were compared.
    """

    head: str = ""
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: tuple[int, int] = (0, 0)
    graded: int = 0
    not_trusted: list[str] = field(default_factory=list)
    compared: int = 0

    def __str__(self) -> str:
        total, run = self.calls
        lines = [*(f"WRONG: {each}" for each in self.wrong), *(f"note: {each}" for each in self.notes)]
        lines += [f"not checked: {each}" for each in self.not_trusted]
        lines.append(f"{run} of {total} calls ran again, {self.graded} trajectories were graded again")
        for false in (0.01, 0.1):
            lines.append(
                f"if {false:.0%} of the calls were false, this would have found one with a probability of "
                f"{detection_probability(total, run, false):.3f}"
            )
        verdict = "WRONG" if self.wrong else "not all of it was checked" if self.not_trusted else "ok"
        return "\n".join([*lines, f"receipt {self.head}: {verdict}"])


def detection_probability(total: int, drawn: int, false: float) -> float:
    """Return the probability that `drawn` of `total` calls, without replacement, include one of the false ones."""
    wrong = round(total * false)
    missed = 1.0
    for index in range(drawn):
        missed *= max(0, total - wrong - index) / (total - index)
    return 1.0 - missed if wrong else 0.0


def check_receipt(check: Check, directory: Path) -> None:
    """Check the records of a run against its receipt, but for the files of checkpoints, which have another check."""
    audit = check_records(directory, hash_checkpoints=False)
    for each in audit.wrong:
        check.add(False, each.removeprefix(f"{directory}/"))
    check.compared = max(audit.compared, check.wrong)
    for note in audit.notes:
        check.add_note(note)


def check_records(directory: Path, head: str | None = None, *, hash_checkpoints: bool = True) -> ReceiptAudit:
    """Check the chain of a receipt and every byte of the files in it, without running anything.

    Args:
        directory: Run directory.
        head: Hash of the last line as it was noted when the run ended. Without it, a rewrite of all records and the
            whole chain is not found here.
        hash_checkpoints: Whether to read the files of checkpoints, in addition to their manifests.
    """
    audit = ReceiptAudit()
    finished = os.path.lexists(directory / SUMMARY_FILE)  # before the lines: a run in progress appends them first
    try:
        lines = read_receipt(directory)
    except RecordError as error:
        audit.wrong.append(str(error))
        return audit
    if not lines:
        audit.wrong.append(f"{directory / RECEIPT_FILE}: expected the receipt of the run, found none")
        return audit
    _check_chain(directory, lines, audit)
    audit.head = lines[-1]["hash"]
    if head is not None and head != audit.head:
        audit.wrong.append(f"the receipt ends with {audit.head}, expected {head}")
    finished = finished and lines[-1]["event"] != "start"  # which is about to remove the summary, and records
    files: dict[str, Mapping[str, Any]] = {name: entry for line in lines for name, entry in line["files"].items()}
    unwritten = _replaced_configs(directory, lines[-1], audit)
    for name, entry in files.items():
        path = directory / name
        if name in unwritten:
            continue
        is_manifest = PurePath(name).match(CHECKPOINTS)
        _check_file(path, entry, audit, may_be_removed=is_manifest)
        if is_manifest and os.path.lexists(path):
            _check_checkpoint(path, audit, hashes=hash_checkpoints)
    ended = lines[-1]["event"] == "end"
    _check_metrics(directory, lines, finished, audit)
    _check_examples(directory, lines, audit)
    for name in _sealed_files(directory, *_OF_STEPS) - files.keys():
        # The last checkpoint ends after its row: its manifest is in the line of the end.
        expected = ended if PurePath(name).match(CHECKPOINTS) else finished
        (audit.wrong if expected else audit.notes).append(f"{name} is not in the receipt")
    for name in _sealed_files(directory, f"{EXPORT_DIRECTORY}/**/*") - files.keys():
        (audit.wrong if ended else audit.notes).append(f"{name} is not in the receipt")
    if finished and not ended:  # the run was killed between its summary and the receipt's last line
        audit.notes.append("model and summary are not sealed: the receipt has no end")
    if lines[0]["step"] > 0:
        audit.notes.append(f"the receipt begins at step {lines[0]['step']}")
    audit.notes.append("not covered: logs, report.html, TensorBoard")
    return audit


def _replaced_configs(directory: Path, line: Mapping[str, Any], audit: ReceiptAudit) -> set[str]:
    """Return the configurations that the last line, if it is of a start, has and the start has not written yet.

    Until then, there is the configuration that it replaces, whose hash it has, and maybe no copy of that.
    """
    replaced = line.get("replaces") if line["event"] == "start" else None
    if replaced is None or file_entry(directory / CONFIG_FILE) != replaced:
        return set()
    audit.notes.append("the last start has not written its configuration")
    copies = (name for name, entry in line["files"].items() if entry == replaced)
    return {CONFIG_FILE, *(name for name in copies if not os.path.lexists(directory / name))}


def _sealed_files(directory: Path, *patterns: str) -> dict[str, None]:
    """Return the files of these patterns, relative to the directory."""
    paths = (path for pattern in patterns for path in sorted(directory.glob(pattern)) if not path.is_dir())
    paths = (path for path in paths if not path.name.startswith("."))  # left by a process that was killed
    return dict.fromkeys(str(path.relative_to(directory)) for path in paths)


def _check_chain(directory: Path, lines: Sequence[Mapping[str, Any]], audit: ReceiptAudit) -> None:
    previous = FIRST
    data = read_file(directory / RECEIPT_FILE).splitlines(keepends=True)
    for number, (line, text) in enumerate(zip(lines, data, strict=False)):
        whole = line["number"] == number and line["previous"] == previous and line["hash"] == line_hash(line)
        if not whole or (text.endswith(b"\n") and text != canonical_json(line) + b"\n"):
            audit.wrong.append(f"{RECEIPT_FILE}, line {number + 1}: the chain is broken")
        previous = line["hash"]
    if data and not data[-1].endswith(b"\n"):
        target = audit.wrong if os.path.lexists(directory / SUMMARY_FILE) else audit.notes
        target.append(f"{RECEIPT_FILE}: the last line is unfinished")


def _check_file(path: Path, entry: Mapping[str, Any], audit: ReceiptAudit, *, may_be_removed: bool = False) -> None:
    try:
        found = file_entry(path)
    except RecordError as error:
        if may_be_removed and not os.path.lexists(path):
            return
        audit.wrong.append(str(error))
    else:
        if found != dict(entry):
            audit.wrong.append(f"{path}: has changed since it was written")
    audit.compared += 1


def _check_checkpoint(manifest: Path, audit: ReceiptAudit, *, hashes: bool) -> None:
    try:
        entries = parse_json(read_file(manifest))["files"]
        if hashes:
            for name, entry in entries.items():
                _check_file(manifest.parent / name, entry, audit)
        for name in unknown_files(manifest.parent):
            audit.wrong.append(f"{manifest.parent / name}: is not in the manifest")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
        if os.path.lexists(manifest):  # the run may remove the checkpoint
            audit.wrong.append(f"{manifest}: damaged: {error}")


def _check_examples(directory: Path, lines: Sequence[Mapping[str, Any]], audit: ReceiptAudit) -> None:
    """Check the examples of the steps of fine-tuning."""
    expected = {line["step"]: line["content"]["examples"] for line in lines if "examples" in line.get("content", {})}
    if not expected:
        return
    try:
        found = {row["step"]: digest_of(row["examples"]) for row in read_rows(directory / EXAMPLES_FILE)}
    except (RecordError, LookupError, TypeError) as error:
        audit.wrong.append(f"{EXAMPLES_FILE}: cannot be read: {error}")
        return
    for step, digest in expected.items():
        if found.get(step) != digest:
            audit.wrong.append(f"{EXAMPLES_FILE}: the row of step {step} is missing or has changed")
    audit.compared += len(expected)


def _check_metrics(directory: Path, lines: Sequence[Mapping[str, Any]], finished: bool, audit: ReceiptAudit) -> None:
    try:
        rows = read_file(directory / METRICS_FILE).splitlines(keepends=True)
    except OSError as error:
        audit.wrong.append(f"{directory / METRICS_FILE}: {error.strerror}")
        return
    expected = [line for line in lines if line["event"] == "row"]
    found = [hashlib.sha256(row).hexdigest() for row in rows]
    for number, (line, row, digest) in enumerate(zip(expected, rows, found, strict=False), 1):
        if line.get("row") != digest:
            audit.wrong.append(f"{METRICS_FILE}, line {number}: has changed since it was written")
        elif _step_of(row) != line["step"]:
            audit.wrong.append(f"{METRICS_FILE}, line {number}: its step is not that of the receipt, {line['step']}")
    audit.compared += len(expected)
    if len(found) < len(expected) or (finished and len(found) > len(expected)):
        audit.wrong.append(f"{METRICS_FILE}: {len(found)} rows, expected {len(expected)}")
    elif len(found) > len(expected):
        audit.notes.append(f"{METRICS_FILE}: the last {len(found) - len(expected)} rows are not in the receipt")


def _step_of(row: bytes) -> Any:
    try:
        return parse_json(row)["step"]
    except (ValueError, LookupError, TypeError):  # a mismatch of another check
        return None
