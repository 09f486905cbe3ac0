"""The records of a run against its receipt: the chain, and every byte of the files in it. Nothing runs."""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, ClassVar, Final

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
class ReceiptCheck(Check):
    """The check of a receipt, with all of its mismatches as examples.

    Attributes:
        head: Hash of the last line.
        calls: Number of calls, and of those that were run again.
        graded: Number of trajectories that were graded again.
        not_trusted: A line for each thing that the run's files name and that was left out for lack of trust.
    """

    shown: ClassVar[int] = sys.maxsize
    name: str = "receipt"
    head: str = ""
    calls: tuple[int, int] = (0, 0)
    graded: int = 0
    not_trusted: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        total, run = self.calls
        lines = [f"WRONG: {each}" for each in self.examples]
        lines += [f"note: {each}" for each in self.note.split("; ") if each]
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


def check_receipt(directory: Path, head: str | None = None) -> ReceiptCheck:
    """Check the records of a run against its receipt, and the hash of its last line against `head`, if known."""
    check = ReceiptCheck()
    check.head = check_records(check, directory)
    if head is not None and check.head:
        check.add(check.head == head, f"the receipt ends with {check.head}, expected {head}")
    return check


def check_records(check: Check, directory: Path, *, hash_checkpoints: bool = True) -> str:
    """Check the chain of a receipt and every byte of the files in it, maybe without those of checkpoints.

    Return the hash of the last line, without which a rewrite of all records and the whole chain is not found; "" if
    the receipt cannot be read.
    """
    finished = os.path.lexists(directory / SUMMARY_FILE)  # before the lines: a run in progress appends them first
    try:
        lines = read_receipt(directory)
    except RecordError as error:
        _add_error(check, directory, error)
        return ""
    if not lines:
        check.add(False, f"{RECEIPT_FILE}: expected the receipt of the run, found none")
        return ""
    _check_chain(check, directory, lines)
    finished = finished and lines[-1]["event"] != "start"  # which is about to remove the summary, and records
    files: dict[str, Mapping[str, Any]] = {name: entry for line in lines for name, entry in line["files"].items()}
    unwritten = _replaced_configs(check, directory, lines[-1])
    for name, entry in files.items():
        if name in unwritten:
            continue
        is_manifest = PurePath(name).match(CHECKPOINTS)
        if not is_manifest or os.path.lexists(directory / name):  # the run removes checkpoints
            _check_file(check, directory, name, entry)
        if is_manifest and os.path.lexists(directory / name):
            _check_checkpoint(check, directory, PurePath(name), hashes=hash_checkpoints)
    ended = lines[-1]["event"] == "end"
    _check_metrics(check, directory, lines, finished)
    _check_examples(check, directory, lines)
    for name in _sealed_files(directory, *_OF_STEPS) - files.keys():
        # The last checkpoint ends after its row: its manifest is in the line of the end.
        expected = ended if PurePath(name).match(CHECKPOINTS) else finished
        _add(check, f"{name} is not in the receipt", wrong=expected)
    for name in _sealed_files(directory, f"{EXPORT_DIRECTORY}/**/*") - files.keys():
        _add(check, f"{name} is not in the receipt", wrong=ended)
    if finished and not ended:  # the run was killed between its summary and the receipt's last line
        check.add_note("model and summary are not sealed: the receipt has no end")
    if lines[0]["step"] > 0:
        check.add_note(f"the receipt begins at step {lines[0]['step']}")
    check.add_note("not covered: logs, report.html, TensorBoard")
    return str(lines[-1]["hash"])


def _add(check: Check, text: str, *, wrong: bool) -> None:
    """Count a mismatch, or add a note if a run that continues or was killed explains it."""
    if wrong:
        check.add(False, text)
    else:
        check.add_note(text)


def _add_error(check: Check, directory: Path, error: Exception) -> None:
    check.add(False, str(error).removeprefix(f"{directory}/"))


def _replaced_configs(check: Check, directory: Path, line: Mapping[str, Any]) -> set[str]:
    """Return the configurations that the last line, if it is of a start, has and the start has not written yet.

    Until then, there is the configuration that it replaces, whose hash it has, and maybe no copy of that.
    """
    replaced = line.get("replaces") if line["event"] == "start" else None
    if replaced is None or file_entry(directory / CONFIG_FILE) != replaced:
        return set()
    check.add_note("the last start has not written its configuration")
    copies = (name for name, entry in line["files"].items() if entry == replaced)
    return {CONFIG_FILE, *(name for name in copies if not os.path.lexists(directory / name))}


def _sealed_files(directory: Path, *patterns: str) -> dict[str, None]:
    """Return the files of these patterns, relative to the directory."""
    paths = (path for pattern in patterns for path in sorted(directory.glob(pattern)) if not path.is_dir())
    paths = (path for path in paths if not path.name.startswith("."))  # left by a process that was killed
    return dict.fromkeys(str(path.relative_to(directory)) for path in paths)


def _check_chain(check: Check, directory: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    previous = FIRST
    data = read_file(directory / RECEIPT_FILE).splitlines(keepends=True)
    for number, (line, text) in enumerate(zip(lines, data, strict=False)):
        whole = line["number"] == number and line["previous"] == previous and line["hash"] == line_hash(line)
        if not whole or (text.endswith(b"\n") and text != canonical_json(line) + b"\n"):
            check.add(False, f"{RECEIPT_FILE}, line {number + 1}: the chain is broken")
        previous = line["hash"]
    if data and not data[-1].endswith(b"\n"):
        wrong = os.path.lexists(directory / SUMMARY_FILE)
        _add(check, f"{RECEIPT_FILE}: the last line is unfinished", wrong=wrong)


def _check_file(check: Check, directory: Path, name: str, entry: Mapping[str, Any]) -> None:
    try:
        found = file_entry(directory / name)
    except RecordError as error:
        _add_error(check, directory, error)
    else:
        check.add(found == dict(entry), f"{name}: has changed since it was written")


def _check_checkpoint(check: Check, directory: Path, name: PurePath, *, hashes: bool) -> None:
    manifest = directory / name
    try:
        entries = parse_json(read_file(manifest))["files"]
        if hashes:
            for own, entry in entries.items():
                _check_file(check, directory, str(name.parent / own), entry)
        for own in unknown_files(manifest.parent):
            check.add(False, f"{name.parent / own}: is not in the manifest")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CheckpointError) as error:
        if os.path.lexists(manifest):  # the run may remove the checkpoint
            check.add(False, f"{name}: damaged: {error}")


def _check_examples(check: Check, directory: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Check the examples of the steps of fine-tuning."""
    expected = {line["step"]: line["content"]["examples"] for line in lines if "examples" in line.get("content", {})}
    if not expected:
        return
    try:
        found = {row["step"]: digest_of(row["examples"]) for row in read_rows(directory / EXAMPLES_FILE)}
    except (RecordError, LookupError, TypeError) as error:
        check.add(False, f"{EXAMPLES_FILE}: cannot be read: {error}")
        return
    for step, digest in expected.items():
        check.add(found.get(step) == digest, f"{EXAMPLES_FILE}: the row of step {step} is missing or has changed")


def _check_metrics(check: Check, directory: Path, lines: Sequence[Mapping[str, Any]], finished: bool) -> None:
    try:
        rows = read_file(directory / METRICS_FILE).splitlines(keepends=True)
    except OSError as error:
        check.add(False, f"{METRICS_FILE}: {error.strerror}")
        return
    expected = [line for line in lines if line["event"] == "row"]
    for number, (line, row) in enumerate(zip(expected, rows, strict=False), 1):
        place = f"{METRICS_FILE}, line {number}"
        if line.get("row") != hashlib.sha256(row).hexdigest():
            check.add(False, f"{place}: has changed since it was written")
        else:
            same = _step_of(row) == line["step"]
            check.add(same, f"{place}: its step is not that of the receipt, {line['step']}")
    if len(rows) < len(expected) or (finished and len(rows) > len(expected)):
        check.add(False, f"{METRICS_FILE}: {len(rows)} rows, expected {len(expected)}")
    elif len(rows) > len(expected):
        check.add_note(f"{METRICS_FILE}: the last {len(rows) - len(expected)} rows are not in the receipt")


def _step_of(row: bytes) -> Any:
    try:
        return parse_json(row)["step"]
    except (ValueError, LookupError, TypeError):  # a mismatch of another check
        return None
