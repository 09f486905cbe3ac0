"""The checks of one trajectory: those of `torl verify` that need neither the weights nor the prompt template."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from torl.base.errors import RecordError
from torl.base.options import Choice
from torl.base.trust import Reading, continued
from torl.base.types import Problem
from torl.components.hub import resolve_model
from torl.components.rewards import Reward
from torl.rollout.grading import ProblemsById
from torl.run.config import LearningConfig, ProblemChoice, RolloutConfig, TrainConfig
from torl.run.records.files import evaluation_files, step_of_file, training_files
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import read_token_numbers
from torl_lab.audit.advantages import check_advantages
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import (
    Check,
    OwnCheck,
    check_rewards,
    find_problems,
    place_of,
    started_reward,
    version_mismatch,
)
from torl_lab.audit.history import RunHistory, evaluation_plays
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.tokens import record_mismatch
from torl_lab.audit.updates import check_updates


class TrajectoryAudit:
    """Checks single trajectories of a run. Use it as a context manager: it keeps rewards and tokenizers open."""

    def __init__(self, directory: Path, *, trust: bool = False) -> None:
        """Set the directory of the run, finished or running, and whether to run what its files name."""
        self._directory, self._reading = directory, Reading(trust)
        self._stack = AsyncExitStack()
        self._rewards: list[tuple[Choice[Reward], Reward]] = []
        self._sources: list[tuple[ProblemChoice, ProblemsById]] = []
        self._contexts: list[tuple[LearningConfig, ReplayContext]] = []
        self._file: tuple[object, Sequence[TrajectoryRecord]] = (None, ())

    async def verify(self, path: Path, line: int | None) -> list[Check]:
        """Check the trajectory in a line of a file, from 0, or all trajectories of the file.

        A check without comparisons has a note with the reason. A check "trust", if it is there, names what was left
        out for lack of trust.

        Raises:
            TorlError: The records or the configuration cannot be read.
        """
        with continued(self._reading):
            checks = await self._verify(path, line)
        return checks + [Check("trust", note=note) for note in ["; ".join(self._reading.lines())] if note]

    async def _verify(self, path: Path, line: int | None) -> list[Check]:
        records = await asyncio.to_thread(self._read, path)
        if (line or 0) >= len(records):
            raise RecordError(f"{path}: has {len(records)} trajectories, expected line {(line or 0) + 1}")
        record, step = records[line or 0], step_of_file(path)
        chosen = records if line is None else [record]
        place = place_of(record) if line is not None else path.name
        history = await asyncio.to_thread(RunHistory.read, self._directory, Check("metrics"))
        is_training = path in training_files(self._directory)
        config = history.config_at(record.step) if is_training else history.start_config_at(record.step)
        rollout = config.rollout if is_training else config.evaluation.apply_to(config.rollout)
        tokens, versions, rewards, advantages, updates = (
            Check(name) if line is None else OwnCheck(name, place=place)
            for name in ("tokens", "versions", "rewards", "advantages", "updates")
        )
        with tokens.reading(place):
            for each in chosen:
                await asyncio.to_thread(self._check_tokens, tokens, each, config, rollout)
        staleness = config.rollout.max_staleness if is_training else 0
        for each in [each for one in chosen for each in one.episode_trajectories]:
            versions.add_mismatch(each, version_mismatch(each, staleness))
        groups = {each.trajectory.group_id for each in chosen}
        group = [each for each in records if each.trajectory.group_id in groups]
        with rewards.reading(place):
            choice = config.reward if is_training else config.evaluation.reward or config.reward
            reward = await self._reward(choice, config)
            problems = await asyncio.to_thread(self._find_problems, group, path, config)
            await check_rewards(rewards, group, reward, rollout.max_response_tokens, problems)
        if not rewards.compared and record.grade.failure is not None:
            rewards.add_note(f"the grader failed: {record.grade.failure}")
        if not is_training or step is None or not isinstance(config, TrainConfig):
            advantages.add_note("an evaluation has no advantages")
            updates.add_note("an evaluation has no updates")
        elif all(each.advantage is None for each in chosen):
            advantages.add_note("outside the batch")
            updates.add_note("outside the batch")
        else:
            batch = LearnedBatch(records, step, config, partial(read_token_numbers, self._directory, step))
            with advantages.reading(place):
                await asyncio.to_thread(check_advantages, advantages, batch)
            with updates.reading(place):
                if not history.may_lack_numbers(step):
                    await asyncio.to_thread(check_updates, updates, batch)
            if not updates.compared:
                updates.add_note("the learner did not record the tokens of this trajectory")
        return [tokens, versions, rewards, advantages, updates]

    def _check_tokens(
        self, check: Check, record: TrajectoryRecord, config: LearningConfig, rollout: RolloutConfig
    ) -> None:
        context = replace(self._context(config), rollout=rollout)
        for each in record.episode_trajectories:
            check.add_mismatch(each, record_mismatch(each, context))

    def _read(self, path: Path) -> Sequence[TrajectoryRecord]:
        found = path.stat()
        stamp = (path, found.st_ino, found.st_size, found.st_mtime_ns)
        if self._file[0] != stamp:
            self._file = stamp, list(read_trajectories(path))
        return self._file[1]

    def _context(self, config: LearningConfig) -> ReplayContext:
        for known, context in self._contexts:
            if (known.rollout, known.model.path) == (config.rollout, config.model.path):
                return context
        context = ReplayContext.from_config(config.rollout, resolve_model(config.model.path))
        self._contexts.append((config, context))
        return context

    def _find_problems(
        self, records: Sequence[TrajectoryRecord], path: Path, config: LearningConfig
    ) -> dict[str, Problem]:
        """Return the problems of a file's records with their metadata, as far as the source has them."""
        choice = _source_of(path, self._directory, config)
        if choice is None:
            return {}
        known = next((source for other, source in self._sources if other == choice), None)
        if known is None or not known.available:  # the file may have come back
            known = ProblemsById(choice)
            self._sources = [(other, source) for other, source in self._sources if other != choice]
            self._sources.append((choice, known))
        return find_problems(records, known)

    async def _reward(self, choice: Choice[Reward], config: LearningConfig) -> Reward:
        for known, reward in self._rewards:
            if known == choice:
                return reward
        reward = await self._stack.enter_async_context(started_reward(choice, config, self._directory))
        self._rewards.append((choice, reward))
        return reward

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()


def _source_of(path: Path, run: Path, config: LearningConfig) -> ProblemChoice | None:
    """Return the source of the problems in a trajectory file of a run, if the configuration has it."""
    label = next((label for label, paths in evaluation_files(run).items() if path in paths), None)
    if label is None:
        return config.data.train if isinstance(config, TrainConfig) else None
    sets = config.data.evaluation.items()
    return next((choice for name, choice in sets if label in evaluation_plays(name, config.evaluation)), None)
