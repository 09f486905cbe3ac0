"""The check of a run's receipt: its records, and a random part of the calls and grades again."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

from torl.base.component import RunContext
from torl.base.errors import NotTrustedError, TorlError
from torl.base.seeds import derive_seed
from torl.base.trust import reading
from torl.components.rewards import Reward
from torl.rollout.calls import clean_outcome
from torl.rollout.grading import ProblemsById
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records.files import step_of_file, training_files
from torl.run.records.reading import read_rows
from torl.run.records.rows import decode_trajectory
from torl.run.records.run_directory import read_configs
from torl_lab.audit.checks import Check, check_rewards, find_problems, reward_of
from torl_lab.audit.receipt_records import ReceiptAudit, check_records
from torl_lab.audit.resumed import repeat_if_resumed
from torl_lab.replay.calls import CallSandboxes, compare_outcomes, sandbox_of

Item = TypeVar("Item")

SHARE: Final = 0.01
"""Share of the calls that run again."""


async def verify_receipt(
    directory: Path, head: str | None = None, share: float = SHARE, *, trust: bool = False
) -> ReceiptAudit:
    """Check the records, then run a random share of the calls and grade a random share of the groups again.

    Args:
        directory: Run directory.
        head: Hash of the last line, as noted when the run ended.
        share: Share of calls and groups, of which at least one is drawn.
        trust: Whether to import, start and connect to what the run's files name.

    Raises:
        TorlError: The configuration cannot be read, or the sandbox or the reward failed.
    """

    async def attempt() -> ReceiptAudit:
        audit = await asyncio.to_thread(check_records, directory, head)
        if audit.wrong:
            return audit  # the records are not the run's
        with reading(trust=trust) as opened:
            await _run_share(directory, share, audit)
            audit.not_trusted += opened.lines()
        return audit

    return await repeat_if_resumed(directory, attempt, lambda audit: not audit.wrong)


async def _run_share(directory: Path, share: float, audit: ReceiptAudit) -> None:
    """Run calls and grade groups again."""
    configs = await asyncio.to_thread(read_configs, directory)
    drawn = await asyncio.to_thread(draw_share, directory, share)
    ran = 0
    async with CallSandboxes() as sandboxes:
        for path, places in drawn.calls.items():
            config, step = configs[_start_of(path, configs)][1], step_of_file(path) or 0
            if not isinstance(config, TrainConfig) or config.ablation.shuffle == "observations":
                continue
            rows = await asyncio.to_thread(read_lines, path, {line for line, _ in places})
            for line, number in places:
                ran += await _run_again(rows[line], number, config.at_step(step), sandboxes, audit)
    audit.calls = (drawn.total, ran)
    await _grade_again(directory, drawn.groups, configs, audit)


def _start_of(path: Path, configs: Sequence[tuple[int, LearningConfig]]) -> int:
    """Return the position of the configuration that the step of a file was played with."""
    step = step_of_file(path) or 0
    return max((number for number, (first, _) in enumerate(configs) if first <= step), default=0)


async def _run_again(
    row: Mapping[str, Any], number: int, config: TrainConfig, sandboxes: CallSandboxes, audit: ReceiptAudit
) -> bool:
    """Run a call of the sandbox again in the state of its session, and return whether it could be run."""
    recorded = row["tool_calls"][number]
    choice = sandbox_of(config, recorded["tool"])
    if choice is None:
        if (note := f"calls of {recorded['tool']!r} do not run in the sandbox") not in audit.notes:
            audit.notes.append(note)
        return False
    seed = derive_seed(config.run.seed, row["step"], row["problem"])
    try:
        session = await sandboxes.session_before(row, number, seed, choice)
    except NotTrustedError:
        return False
    outcome = clean_outcome(await session.call(recorded["arguments"]))
    if different := compare_outcomes(recorded, outcome):
        place = f"step {row['step']}, {row['group']}, sample {row['sample']}, call {number}"
        audit.wrong.append(f"{place}: another {different[0].name} when run again")
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
        reward, source = reward_of(config.reward), ProblemsById(config.data.train)
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


@dataclass(slots=True)
class DrawnShare:
    """The places of drawn calls and groups, by the files of the steps in their order.

    Attributes:
        total: Number of calls that could have been drawn.
        calls: Calls: line of the trajectory from 0, and position in it.
        groups: Names of groups.
    """

    total: int
    calls: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    groups: dict[Path, list[str]] = field(default_factory=dict)


def draw_share(directory: Path, share: float) -> DrawnShare:
    """Draw calls and groups of a run. Only places stay in memory: the trajectories of a run may not fit.

    Raises:
        RecordError: A file is damaged.
    """
    calls: list[tuple[Path, int, int]] = []
    groups: dict[tuple[Path, str], None] = {}
    for path in training_files(directory):
        for line, row in enumerate(read_rows(path)):
            groups[path, row["group"]] = None
            if not row.get("branches") and row.get("program_answer") is None:
                numbers = (number for number, call in enumerate(row["tool_calls"]) if call["tool"] is not None)
                calls += ((path, line, number) for number in numbers)
    drawn = DrawnShare(len(calls))
    for path, line, number in _draw(calls, share):
        drawn.calls.setdefault(path, []).append((line, number))
    for path, name in _draw(list(groups), share):
        drawn.groups.setdefault(path, []).append(name)
    return drawn


def _draw(items: Sequence[Item], share: float) -> list[Item]:
    """Return a random share of items, at least one if there are any, in their order."""
    count = min(len(items), max(1, round(len(items) * share)))
    return [items[index] for index in sorted(SystemRandom().sample(range(len(items)), count))]


def read_lines(path: Path, lines: Collection[int]) -> dict[int, Mapping[str, Any]]:
    """Return some rows of a file by their lines, from 0."""
    return {line: row for line, row in enumerate(read_rows(path)) if line in lines}


def read_groups(path: Path, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of some groups of a file by the names of the groups."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for row in read_rows(path):
        if row["group"] in found:
            found[row["group"]].append(row)
    return found
