"""The check of a run's receipt: its records, and a random part of the calls and grades again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

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
from torl_lab.audit.checks import check_rewards, find_problems, started_reward
from torl_lab.audit.history import receipt_lines
from torl_lab.audit.receipt_records import ReceiptCheck, check_receipt
from torl_lab.replay.calls import CallSandboxes, compare_outcomes, sandbox_of

Item = TypeVar("Item")
Result = TypeVar("Result")

SHARE: Final = 0.01
"""Share of the calls that run again."""


async def verify_receipt(
    directory: Path, head: str | None = None, share: float = SHARE, *, trust: bool = False
) -> ReceiptCheck:
    """Check the records, then run a random share of the calls and grade a random share of the groups again.

    Args:
        directory: Run directory.
        head: Hash of the last line, as noted when the run ended.
        share: Share of calls and groups, of which at least one is drawn.
        trust: Whether to import, start and connect to what the run's files name.

    Raises:
        TorlError: The configuration cannot be read, or the sandbox or the reward failed.
    """

    async def attempt() -> ReceiptCheck:
        check = await asyncio.to_thread(check_receipt, directory, head)
        if check.wrong:
            return check  # the records are not the run's
        with reading(trust=trust) as opened:
            await _run_share(directory, share, check)
            check.not_trusted += opened.lines()
        return check

    return await repeat_if_resumed(directory, attempt, lambda check: not check.wrong)


async def repeat_if_resumed(
    directory: Path, audit: Callable[[], Awaitable[Result]], is_right: Callable[[Result], bool]
) -> Result:
    """Audit a run, again for as long as an audit fails and the run has been resumed in the meantime.

    A resume removes records that the audit expects. A run that only continues appends to its records.
    """
    while True:
        before = await asyncio.to_thread(receipt_lines, directory)
        try:
            result = await audit()
            if is_right(result) or not await asyncio.to_thread(_was_resumed, directory, before):
                return result
        except (OSError, TorlError):
            if not await asyncio.to_thread(_was_resumed, directory, before):
                raise


def _was_resumed(directory: Path, before: list[dict[str, Any]]) -> bool:
    now = receipt_lines(directory)
    return now[: len(before)] != before or any(line["event"] == "start" for line in now[len(before) :])


async def _run_share(directory: Path, share: float, check: ReceiptCheck) -> None:
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
                ran += await _run_again(check, rows[line], number, config.at_step(step), sandboxes)
    check.calls = (drawn.total, ran)
    await _grade_again(check, directory, drawn.groups, configs)


def _start_of(path: Path, configs: Sequence[tuple[int, LearningConfig]]) -> int:
    """Return the position of the configuration that the step of a file was played with."""
    step = step_of_file(path) or 0
    return max((number for number, (first, _) in enumerate(configs) if first <= step), default=0)


async def _run_again(
    check: ReceiptCheck, row: Mapping[str, Any], number: int, config: TrainConfig, sandboxes: CallSandboxes
) -> bool:
    """Run a call of the sandbox again in the state of its session, and return whether it could be run."""
    recorded = row["tool_calls"][number]
    choice = sandbox_of(config, recorded["tool"])
    if choice is None:
        check.add_note(f"calls of {recorded['tool']!r} do not run in the sandbox")
        return False
    seed = derive_seed(config.run.seed, row["step"], row["problem"])
    try:
        session = await sandboxes.session_before(row, number, seed, choice)
    except NotTrustedError:
        return False
    different = compare_outcomes(recorded, clean_outcome(await session.call(recorded["arguments"])))
    place = f"step {row['step']}, {row['group']}, sample {row['sample']}, call {number}"
    check.add(not different, f"{place}: another {next(iter(different), None)} when run again")
    return True


async def _grade_again(
    check: ReceiptCheck,
    directory: Path,
    drawn: Mapping[Path, Sequence[str]],
    configs: Sequence[tuple[int, LearningConfig]],
) -> None:
    """Grade groups again, those of each start of the run with one reward."""
    for number, paths in groupby(drawn, key=lambda path: _start_of(path, configs)):
        config = configs[number][1]
        if not isinstance(config, TrainConfig):
            continue
        source = ProblemsById(config.data.train)
        async with started_reward(config.reward, config, directory) as reward:
            for path in paths:
                limit = config.at_step(step_of_file(path) or 0).rollout.max_response_tokens
                for name, rows in (await asyncio.to_thread(read_groups, path, drawn[path])).items():
                    await _grade_group(check, name, rows, reward, source, limit)


async def _grade_group(
    check: ReceiptCheck,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    source: ProblemsById,
    max_response_tokens: int,
) -> None:
    before = check.compared
    try:
        records = [decode_trajectory(row) for row in rows]
        problems = await asyncio.to_thread(find_problems, records, source)
        await check_rewards(check, records, reward, max_response_tokens, problems)
    except (KeyError, TypeError, ValueError) as error:
        raise TorlError(f"{name}: not a group of trajectories: {error}") from error
    check.graded += check.compared - before


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
