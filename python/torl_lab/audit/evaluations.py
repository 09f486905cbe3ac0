"""The checks of the evaluations that a run played with one configuration."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from torl.base.types import Problem
from torl.components.hub import resolve_model
from torl.components.rewards import Reward
from torl.components.text.tokenizer import load_tokenizer
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import LearningConfig
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE, trajectory_file
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.batch import check_groups, scored_group
from torl_lab.audit.checks import Check, check_rewards, find_problems, group_members, place_of, version_mismatch
from torl_lab.audit.history import RunHistory, evaluation_plays, read_file
from torl_lab.audit.metric_rows import OF_EVALUATIONS
from torl_lab.audit.metrics import OF_ALL_PROBLEMS, check_row, evaluation_metrics, unknown_metrics
from torl_lab.audit.prompts import PromptAudit
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.sampled import SampledTrajectories
from torl_lab.audit.tokens import record_mismatch


class Checks:
    """The results of all checks of a run, in the order of the table."""

    def __init__(self) -> None:
        self.files, self.groups, self.prompts = Check("files"), Check("groups"), Check("prompts")
        self.tokens, self.versions, self.rewards = Check("tokens"), Check("versions"), Check("rewards")
        self.selection, self.advantages, self.metrics = Check("selection"), Check("advantages"), Check("metrics")
        self.updates, self.checkpoints, self.logprobs = Check("updates"), Check("checkpoints"), Check("logprobs")
        self.receipt = Check("receipt")


@dataclass(frozen=True, slots=True)
class EvaluationAudit:
    """Compares evaluations with the results that follow from a configuration and their own records."""

    config: LearningConfig
    history: RunHistory
    checks: Checks
    sampled: SampledTrajectories
    model: ModelDirectory
    context: ReplayContext
    prompts: PromptAudit

    @classmethod
    def open(cls, config: LearningConfig, history: RunHistory, checks: Checks, sampled: SampledTrajectories) -> Self:
        """Read the model's tokenizer.

        Raises:
            TorlError: The model cannot be read.
        """
        path, rollout = resolve_model(config.model.path), config.rollout
        model = ModelDirectory(path, load_tokenizer(path), rollout.tools, rollout.environment)
        context = ReplayContext.from_config(rollout, path)
        prompts = PromptAudit(checks.prompts, config, model, history)
        return cls(config, history, checks, sampled, model, context, prompts)

    async def check_evaluation(self, step: int, reward: Reward) -> None:
        """Check the evaluation of all problem sets after `step` steps.

        Raises:
            RewardError: The reward failed.
        """
        row, place = self.history.rows.evaluations.get(step), f"evaluation after step {step}"
        if row is None:
            self.checks.metrics.add(False, f"{METRICS_FILE}: expected a row of the {place}, found none")
        elif not self.history.is_evaluated(step):
            self.checks.metrics.add(False, f"{METRICS_FILE}: expected no row of an {place} (evaluation.every_steps)")
        sets = {found[0] for key in row or {} if (found := names.split_evaluation(key)) is not None}
        for name in sorted(sets - self.config.data.evaluation.keys()):
            self.checks.metrics.add(False, f"{place}: expected no problem set {name!r} (data.evaluation)")
        for name in self.config.data.evaluation:
            await self._check_set(step, name, row, reward)

    async def _check_set(self, step: int, name: str, row: Mapping[str, Any] | None, reward: Reward) -> None:
        """Check the evaluation of a problem set."""
        failed, too_long = (
            count_of(row or {}, names.evaluation_name(name, each)) for each in (names.FAILED_EPISODES, names.TOO_LONG)
        )
        problems = None
        if row is not None and (known := await asyncio.to_thread(self.prompts.evaluated, name)) is not None:
            self.checks.metrics.expect(f"evaluation of {name} after step {step}, {names.TOO_LONG}", known[1], too_long)
            problems, too_long = len(known[0]), known[1]
        settings = self.config.evaluation
        by_file: dict[str, list[TrajectoryRecord]] = {}
        for label, (kind, samples) in evaluation_plays(name, settings).items():
            path = trajectory_file(self.history.directory, step, label)
            count = None if problems is None or failed else problems * samples
            by_file[label] = records = await asyncio.to_thread(self.read, path, count)
            by_id = await asyncio.to_thread(find_problems, records, self.prompts.evaluations[name])
            await asyncio.gather(
                self.grade_again(records, reward, path, settings.longest_response(self.config.rollout), by_id),
                asyncio.to_thread(self._check_played, name, f"{name}-{kind}", step, records, samples, failed, too_long),
            )
        if failed and problems is not None:
            expected = problems * settings.episodes(1) - failed
            found = sum(map(len, by_file.values()))
            example = f"evaluation of {name} after step {step}: expected {expected} trajectories, found {found}"
            self.checks.files.add(found == expected, example)
        if row is None or not all(by_file.values()):
            return
        with self.checks.metrics.reading(f"evaluation of {name} after step {step}"):
            of_set = self.prompts.evaluations[name]
            scored = [[scored_group(each) for each in group_members(file).values()] for file in by_file.values()]
            groups, metadata = self.prompts.with_metadata(scored[0], of_set)
            unknown = unknown_metrics(groups, metadata=metadata)
            expected_metrics = evaluation_metrics(
                name,
                groups,
                scored[-1] if settings.greedy else (),
                self.config,
                too_long=too_long,
                problems=problems,
                unknown=unknown,
            )
            of_set_row = {key: value for key, value in row.items() if key.startswith(names.evaluation_name(name, ""))}
            others = (names.variant_reward.prefix, *(() if problems is not None else OF_ALL_PROBLEMS))
            place = f"evaluation after step {step}"
            check_row(self.checks.metrics, place, expected_metrics, of_set_row, (*unknown, *others), OF_EVALUATIONS)

    def read(self, path: Path, count: int | None) -> list[TrajectoryRecord]:
        """Read a file and compare its number of trajectories with the expected one."""
        expected = "trajectories" if count is None else f"{count} trajectories"
        records = read_file(path, self.checks.files, expected)
        if records is None:
            return []
        right = bool(records) if count is None else len(records) == count
        self.checks.files.add(right, f"{path.name}: expected {expected}, found {len(records)}")
        names_of_rows = [record.trajectory.group_id for record in records]
        if len(list(groupby(names_of_rows))) > len(set(names_of_rows)):
            self.checks.files.add(False, f"{path.name}: expected the rows of a group one after the other")
        return records

    async def grade_again(
        self,
        records: Sequence[TrajectoryRecord],
        reward: Reward,
        path: Path,
        max_response_tokens: int,
        problems: Mapping[str, Problem],
    ) -> None:
        """Grade trajectories again, with these problems' metadata, and compare."""
        check = self.checks.rewards
        try:
            await check_rewards(check, records, reward, max_response_tokens, problems)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            check.add(False, f"{path.name}: cannot be graded: {type(error).__name__}: {error}")

    def _check_played(
        self,
        name: str,
        batch_id: str,
        step: int,
        records: Sequence[TrajectoryRecord],
        samples: int,
        failed: int,
        too_long: int,
    ) -> None:
        """Run the checks of an evaluation's file that need no graders."""
        checks, place = self.checks, f"evaluation of {name} after step {step}"
        groups = group_members(records)
        with checks.groups.reading(place):
            check_groups(checks.groups, groups, step=step, batch_id=batch_id, samples=samples, failed=failed)
        with checks.prompts.reading(place):
            self.prompts.check_evaluation(name, records, place, failed=failed, too_long=too_long)
        self.sampled.add_evaluation(records, step, greedy=batch_id.endswith("-greedy"))
        context = replace(self.context, rollout=self.config.evaluation.apply_to(self.config.rollout))
        self.check_trajectories(records, context, max_staleness=0)

    def check_trajectories(
        self, records: Sequence[TrajectoryRecord], context: ReplayContext, max_staleness: int
    ) -> None:
        """Check the tokens and the policy versions of trajectories."""
        for record in [each for episodes in records for each in episodes.episode_trajectories]:
            with self.checks.tokens.reading(place_of(record)):
                self.checks.tokens.add_mismatch(record, record_mismatch(record, context))
            self.checks.versions.add_mismatch(record, version_mismatch(record, max_staleness))


def count_of(row: Mapping[str, Any], name: str) -> int:
    """Return a count of a row; 0 if it is missing or not a whole number."""
    count = row.get(name, 0)
    return count if isinstance(count, int) else 0
