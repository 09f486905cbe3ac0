"""The check of a run's receipt: its chain, every recorded byte, and a random part of the calls and grades again."""

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from torl.apps.audit.checks import Check, check_rewards, find_problems
from torl.apps.audit.receipt_share import draw_share, read_groups, read_lines
from torl.apps.view.replay import compare_outcomes
from torl.component import RunContext
from torl.config import LearningConfig, TrainConfig
from torl.errors import RecordError, TorlError
from torl.records.content import canonical_json
from torl.records.files import METRICS_FILE, SUMMARY_FILE, TOKEN_DIRECTORY, TRAJECTORY_DIRECTORY, step_of_file
from torl.records.receipt import CHECKPOINTS, FIRST, RECEIPT_FILE, file_entry, line_hash, read_receipt
from torl.records.rows import decode_trajectory
from torl.records.run_directory import read_configs
from torl.rewards import Reward, make_reward
from torl.rollout.calls import clean_outcome
from torl.rollout.regrading import ProblemsById
from torl.seeds import derive_seed
from torl.tools import PythonTool, make_tool

SHARE: Final = 0.01
"""Share of the calls that run again."""


@dataclass(slots=True)
class ReceiptAudit:
    """The result of the check of a receipt.

    Attributes:
        head: Hash of the last line.
        wrong: Mismatches.
        notes: Parts that were not checked.
        calls: Number of calls, and of those that were run again.
        graded: Number of trajectories that were graded again.
    """

    head: str = ""
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: tuple[int, int] = (0, 0)
    graded: int = 0

    def __str__(self) -> str:
        total, run = self.calls
        lines = [*(f"WRONG: {each}" for each in self.wrong), *(f"note: {each}" for each in self.notes)]
        lines.append(f"{run} of {total} calls ran again, {self.graded} trajectories were graded again")
        for false in (0.01, 0.1):
            lines.append(
                f"if {false:.0%} of the calls were false, this would have found one with a probability of "
                f"{detection_probability(total, run, false):.3f}"
            )
        return "\n".join([*lines, f"receipt {self.head}: {'WRONG' if self.wrong else 'ok'}"])


def detection_probability(total: int, drawn: int, false: float) -> float:
    """Return the probability that `drawn` of `total` calls, without replacement, include one of the false ones."""
    wrong = round(total * false)
    missed = 1.0
    for index in range(drawn):
        missed *= max(0, total - wrong - index) / (total - index)
    return 1.0 - missed if wrong else 0.0


def check_records(directory: Path, head: str | None = None) -> ReceiptAudit:
    """Check the chain of a receipt and every byte of the files in it, without running anything.

    Args:
        directory: Run directory.
        head: Hash of the last line as it was noted when the run ended. Without it, a rewrite of all records and the
            whole chain is not found here.
    """
    audit = ReceiptAudit()
    try:
        lines = read_receipt(directory)
    except RecordError as error:
        audit.wrong.append(str(error))
        return audit
    if not lines:
        audit.wrong.append(f"{directory / RECEIPT_FILE}: no receipt")
        return audit
    _check_chain(directory, lines, audit)
    audit.head = lines[-1]["hash"]
    if head is not None and head != audit.head:
        audit.wrong.append(f"the receipt ends with {audit.head}, expected {head}")
    files: dict[str, Mapping[str, Any]] = {name: entry for line in lines for name, entry in line["files"].items()}
    for name, entry in files.items():
        path = directory / name
        if name.startswith("checkpoints/"):
            if path.exists():
                _check_file(path, entry, audit)
                _check_checkpoint(path, audit)
        else:
            _check_file(path, entry, audit)
    finished = (directory / SUMMARY_FILE).exists()  # a run that resumes removes it
    _check_metrics(directory, lines, finished, audit)
    patterns = (f"{TRAJECTORY_DIRECTORY}/*.jsonl", f"{TOKEN_DIRECTORY}/*.npz", CHECKPOINTS, "config*.toml")
    found = {str(path.relative_to(directory)) for pattern in patterns for path in directory.glob(pattern)}
    for name in sorted(found - files.keys()):
        (audit.wrong if finished else audit.notes).append(f"{name} is not in the receipt")
    if finished and lines[-1]["event"] != "end":  # the run was killed between its summary and the receipt's last line
        audit.notes.append("model and summary are not sealed: the receipt has no end")
    if lines[0]["step"] > 0:
        audit.notes.append(f"the receipt begins at step {lines[0]['step']}")
    audit.notes.append("not covered: logs, report.html, TensorBoard")
    return audit


def _check_chain(directory: Path, lines: Sequence[Mapping[str, Any]], audit: ReceiptAudit) -> None:
    previous = FIRST
    data = (directory / RECEIPT_FILE).read_bytes().splitlines(keepends=True)
    for number, (line, text) in enumerate(zip(lines, data, strict=False)):
        whole = line["number"] == number and line["previous"] == previous and line["hash"] == line_hash(line)
        if not whole or text != canonical_json(line) + b"\n":
            audit.wrong.append(f"{RECEIPT_FILE}, line {number + 1}: the chain is broken")
        previous = line["hash"]
    if len(data) > len(lines):
        target = audit.wrong if (directory / SUMMARY_FILE).exists() else audit.notes
        target.append(f"{RECEIPT_FILE}: the last line is unfinished")


def _check_file(path: Path, entry: Mapping[str, Any], audit: ReceiptAudit) -> None:
    try:
        if file_entry(path) != dict(entry):
            audit.wrong.append(f"{path}: has changed since it was written")
    except RecordError as error:
        audit.wrong.append(str(error))


def _check_checkpoint(manifest: Path, audit: ReceiptAudit) -> None:
    try:
        entries = json.loads(manifest.read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        audit.wrong.append(f"{manifest}: damaged: {error}")
        return
    for name, entry in entries.items():
        _check_file(manifest.parent / name, entry, audit)


def _check_metrics(directory: Path, lines: Sequence[Mapping[str, Any]], finished: bool, audit: ReceiptAudit) -> None:
    try:
        rows = (directory / METRICS_FILE).read_bytes().splitlines(keepends=True)
    except OSError as error:
        audit.wrong.append(f"{directory / METRICS_FILE}: {error.strerror}")
        return
    expected = [line["row"] for line in lines if "row" in line]
    found = [hashlib.sha256(row).hexdigest() for row in rows]
    for number, (one, other) in enumerate(zip(expected, found, strict=False), 1):
        if one != other:
            audit.wrong.append(f"{METRICS_FILE}, line {number}: has changed since it was written")
    if len(found) < len(expected) or (finished and len(found) > len(expected)):
        audit.wrong.append(f"{METRICS_FILE}: {len(found)} rows, expected {len(expected)}")
    elif len(found) > len(expected):
        audit.notes.append(f"{METRICS_FILE}: the last {len(found) - len(expected)} rows are not in the receipt")


async def verify_receipt(directory: Path, head: str | None = None, share: float = SHARE) -> ReceiptAudit:
    """Check the records, then run a random share of the calls and grade a random share of the groups again.

    Args:
        directory: Run directory.
        head: Hash of the last line, as noted when the run ended.
        share: Share of calls and groups, of which at least one is drawn.

    Raises:
        TorlError: The configuration cannot be read, or the sandbox or the reward failed.
    """
    audit = await asyncio.to_thread(check_records, directory, head)
    if audit.wrong:
        return audit  # the records are not the run's
    configs = await asyncio.to_thread(read_configs, directory)
    drawn = await asyncio.to_thread(draw_share, directory, share)
    ran = 0
    for path, places in drawn.calls.items():
        config, step = configs[_start_of(path, configs)][1], step_of_file(path) or 0
        if not isinstance(config, TrainConfig) or config.ablation.shuffle_observations:
            continue
        rows = await asyncio.to_thread(read_lines, path, {line for line, _ in places})
        for line, number in places:
            ran += await _run_again(rows[line], number, config.at_step(step), audit)
    audit.calls = (drawn.total, ran)
    await _grade_again(directory, drawn.groups, configs, audit)
    return audit


def _start_of(path: Path, configs: Sequence[tuple[int, LearningConfig]]) -> int:
    """Return the position of the configuration that the step of a file was played with."""
    step = step_of_file(path) or 0
    return max((number for number, (first, _) in enumerate(configs) if first <= step), default=0)


async def _run_again(row: Mapping[str, Any], number: int, config: TrainConfig, audit: ReceiptAudit) -> bool:
    """Run a call of the sandbox again in the state of its session, and return whether it could be run."""
    name = row["tool_calls"][number]["tool"]
    choice = config.rollout.tools.get(name)
    if choice is None or not (isinstance(choice.target, type) and issubclass(choice.target, PythonTool)):
        if (note := f"calls of {name!r} do not run in the sandbox") not in audit.notes:
            audit.notes.append(note)
        return False
    options = choice.options.model_copy(update={"workers": 1})
    tool = make_tool(name, replace(choice, options=options))
    try:
        with tempfile.TemporaryDirectory(prefix="torl-receipt-") as scratch:
            await tool.start(RunContext(directory=Path(scratch)))
            session = tool.session(derive_seed(config.run.seed, row["step"], row["problem"]))
            if session.fork() is not session:
                for call in row["tool_calls"][:number]:
                    if call["tool"] == name:
                        await session.call(call["arguments"])
            recorded = row["tool_calls"][number]
            outcome = clean_outcome(await session.call(recorded["arguments"]))
    finally:
        await tool.close()
    if different := compare_outcomes(recorded, outcome):
        place = f"step {row['step']}, {row['group']}, sample {row['sample']}, call {number}"
        audit.wrong.append(f"{place}: another {different[0]['name']} when run again")
    return True


async def _grade_again(
    directory: Path,
    drawn: Mapping[Path, Sequence[str]],
    configs: Sequence[tuple[int, LearningConfig]],
    audit: ReceiptAudit,
) -> None:
    """Grade groups again, those of each start of the run with one reward."""
    for number, paths in groupby(drawn, key=lambda path: _start_of(path, configs)):
        config = configs[number][1]
        if not isinstance(config, TrainConfig):
            continue
        reward, source = make_reward(config.reward), ProblemsById(config.data.train)
        try:
            await reward.start(RunContext(seed=config.run.seed, directory=directory))
            for path in paths:
                limit = config.at_step(step_of_file(path) or 0).rollout.max_response_tokens
                for name, rows in (await asyncio.to_thread(read_groups, path, drawn[path])).items():
                    await _grade_group(name, rows, reward, source, limit, audit)
        finally:
            await reward.close()


async def _grade_group(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    source: ProblemsById,
    max_response_tokens: int,
    audit: ReceiptAudit,
) -> None:
    check = Check("rewards")
    try:
        records = [decode_trajectory(row) for row in rows]
        problems = await asyncio.to_thread(find_problems, records, source)
        await check_rewards(check, records, reward, max_response_tokens, problems)
    except (KeyError, TypeError, ValueError) as error:
        raise TorlError(f"{name}: not a group of trajectories: {error}") from error
    audit.graded += check.compared
    audit.wrong += check.examples
    if check.note and check.note not in audit.notes:
        audit.notes.append(check.note)
