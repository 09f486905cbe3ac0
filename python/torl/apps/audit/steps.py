"""The checks of the steps and the evaluations that a run played with one configuration."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torl.apps.audit.advantages import check_advantages
from torl.apps.audit.agents import agent_mismatch
from torl.apps.audit.checks import Check, check_rewards, group_members, place_of, version_mismatch
from torl.apps.audit.groups import (
    RecordedSelection,
    check_groups,
    check_selection,
    expected_trajectories,
    scored_group,
)
from torl.apps.audit.history import RunHistory, evaluation_plays, read_file
from torl.apps.audit.learning import batch_metrics, check_learning_rate
from torl.apps.audit.logprobs import SampledTrajectories
from torl.apps.audit.metrics import check_row, evaluation_metrics, step_metrics, unknown_metrics
from torl.apps.audit.order import ProblemOrder
from torl.apps.audit.prompts import PromptAudit
from torl.apps.audit.replay import ReplayContext
from torl.apps.audit.tokens import token_mismatch
from torl.config import RolloutConfig, TrainConfig
from torl.hub import resolve_model
from torl.records import metric_names as names
from torl.records.files import METRICS_FILE, trajectory_file
from torl.records.rows import TrajectoryRecord
from torl.rewards import Reward
from torl.rollout.model_directory import ModelDirectory
from torl.text.tokenizer import load_tokenizer


class Checks:
    """The results of all checks of a run, in the order of the table."""

    def __init__(self) -> None:
        self.files, self.groups, self.prompts = Check("files"), Check("groups"), Check("prompts")
        self.tokens, self.versions, self.rewards = Check("tokens"), Check("versions"), Check("rewards")
        self.selection, self.advantages, self.metrics = Check("selection"), Check("advantages"), Check("metrics")
        self.checkpoints, self.logprobs = Check("checkpoints"), Check("logprobs")


@dataclass(frozen=True, slots=True)
class StepAudit:
    """Compares steps and evaluations with what follows from a configuration and their own records."""

    config: TrainConfig
    history: RunHistory
    checks: Checks
    sampled: SampledTrajectories
    order: ProblemOrder
    context: ReplayContext
    prompts: PromptAudit

    @classmethod
    def open(
        cls,
        config: TrainConfig,
        history: RunHistory,
        checks: Checks,
        sampled: SampledTrajectories,
        order: ProblemOrder,
        first_step: int | None,
    ) -> "StepAudit":
        """Read the model's tokenizer, and the problems to train on.

        Args:
            config: Configuration.
            history: History of the run.
            checks: Results that comparisons are counted in.
            sampled: Trajectories whose log-probabilities are compared later.
            order: Order of the problems, after the steps of earlier configurations.
            first_step: First step with this configuration, if any.

        Raises:
            TorlError: The model cannot be read.
        """
        path, rollout = resolve_model(config.model.path), config.rollout
        model = ModelDirectory(path, load_tokenizer(path), rollout.tools, rollout.environment)
        context = ReplayContext.from_config(rollout, path)
        if first_step is not None:
            order.open(config, model.prompts(config.data.train, config.data), first_step)
        prompts = PromptAudit(checks.prompts, config, model, history)
        return cls(config, history, checks, sampled, order, context, prompts)

    def at_step(self, step: int) -> "StepAudit":
        """Return the audit with the configuration of a step, for `check_step`."""
        config = self.config.at_step(step)
        return replace(self, config=config, context=replace(self.context, rollout=config.rollout))

    async def check_step(self, step: int, reward: Reward) -> None:
        """Check a step.

        Raises:
            RewardError: The reward failed.
        """
        row = self.history.step_rows.get(step)
        if row is None and not self.history.may_lack_row(step):
            self.checks.metrics.add(False, f"{METRICS_FILE}: expected a row of step {step}, found none")
        path = trajectory_file(self.history.directory, step)
        count = None
        with self.checks.metrics.reading(f"{METRICS_FILE}, step {step}"):
            count = expected_trajectories(self.config, row)
        records = await asyncio.to_thread(self._read, path, count)
        await asyncio.to_thread(self._check_order, step, records, row)
        if records:
            # Graders run in worker processes, so both proceed in parallel.
            await asyncio.gather(
                self._check_rewards(records, reward, path, self.config.rollout.max_response_tokens),
                asyncio.to_thread(self._check_records, step, records),
            )

    async def check_evaluation(self, step: int, reward: Reward) -> None:
        """Check the evaluation of all problem sets after `step` steps.

        Raises:
            RewardError: The reward failed.
        """
        row, place = self.history.evaluation_rows.get(step), f"evaluation after step {step}"
        if row is None:
            self.checks.metrics.add(False, f"{METRICS_FILE}: expected a row of the {place}, found none")
        sets = {found[0] for key in row or {} if (found := names.split_evaluation(key)) is not None}
        for name in sorted(sets - self.config.data.evaluation.keys()):
            self.checks.metrics.add(False, f"{place}: expected no problem set {name!r} (data.evaluation)")
        for name in self.config.data.evaluation:
            await self._check_set(step, name, row, reward)

    async def _check_set(self, step: int, name: str, row: Mapping[str, Any] | None, reward: Reward) -> None:
        """Check the evaluation of a problem set."""
        failed, too_long = (
            _count(row or {}, names.evaluation_name(name, each)) for each in (names.FAILED_EPISODES, names.TOO_LONG)
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
            by_file[label] = records = await asyncio.to_thread(self._read, path, count)
            await asyncio.gather(
                self._check_rewards(records, reward, path, settings.longest_response(self.config.rollout)),
                asyncio.to_thread(self._check_played, name, f"{name}-{kind}", step, records, samples, failed),
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
            unknown = unknown_metrics(groups, metadata=metadata, accuracies=problems is not None)
            expected_metrics = evaluation_metrics(
                name,
                groups,
                scored[-1] if settings.greedy else (),
                self.config,
                too_long=too_long,
                problems=problems,
                metadata=metadata,
            )
            of_set_row = {key: value for key, value in row.items() if key.startswith(names.evaluation_name(name, ""))}
            check_row(self.checks.metrics, f"evaluation after step {step}", expected_metrics, of_set_row, unknown)

    def _read(self, path: Path, count: int | None) -> list[TrajectoryRecord]:
        """Read a file and compare its number of trajectories with the expected one."""
        expected = "trajectories" if count is None else f"{count} trajectories"
        records = read_file(path, self.checks.files, expected)
        if records is None:
            return []
        right = bool(records) if count is None else len(records) == count
        self.checks.files.add(right, f"{path.name}: expected {expected}, found {len(records)}")
        return records

    async def _check_rewards(
        self, records: Sequence[TrajectoryRecord], reward: Reward, path: Path, max_response_tokens: int
    ) -> None:
        check = self.checks.rewards
        try:
            await check_rewards(check, records, reward, max_response_tokens)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            check.add(False, f"{path.name}: cannot be graded: {type(error).__name__}: {error}")

    def _check_records(self, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Run the checks of a step that need neither graders nor weights."""
        checks, config, place = self.checks, self.config, f"step {step}"
        row = self.history.step_rows.get(step, {})
        groups = group_members(records)
        failed = _count(row, names.FAILED_EPISODES)
        samples = config.rollout.samples_per_prompt
        with checks.groups.reading(place):
            check_groups(checks.groups, groups, step=step, batch_id=step, samples=samples, failed=failed)
        with checks.prompts.reading(place):
            self.prompts.check_step(records)
        self._check_trajectories(records, self.context, config.rollout.max_staleness)
        self.sampled.add_step(records)
        with checks.advantages.reading(place):
            check_advantages(checks.advantages, records, config)
        with checks.selection.reading(place):
            selection = RecordedSelection.from_records(groups, step, config)
            check_selection(checks.selection, groups, step, selection)
        if not row:
            return
        with checks.metrics.reading(place):
            scored = [scored_group(members) for members in groups.values()]
            with_metadata, complete = self.prompts.with_metadata(scored, self.prompts.training)
            expected = step_metrics(with_metadata, step, config, metadata=complete) | dict(selection.counts)
            expected |= names.scheduled_values(self.history.start_config_at(step).scheduled_values(step))
            if not config.ablation.shuffle_rewards:
                expected |= batch_metrics(records, step, config)
            check_row(checks.metrics, place, expected, row, unknown_metrics(scored, metadata=complete))
        check_learning_rate(checks.metrics, self.history, step)

    def _check_order(self, step: int, records: Sequence[TrajectoryRecord], row: Mapping[str, Any] | None) -> None:
        """Compare the problems of a step with those of the sampler. A step without a row may have failed episodes."""
        with self.checks.prompts.reading(f"problems of step {step}"):
            self.order.check_step(
                step,
                group_members(records),
                self.config,
                failed=1 if row is None else _count(row, names.FAILED_EPISODES),
                source_has_changed=self.prompts.source_has_changed,
            )

    def _check_played(
        self, name: str, batch_id: str, step: int, records: Sequence[TrajectoryRecord], samples: int, failed: int
    ) -> None:
        """Run the checks of an evaluation's file that need no graders."""
        checks, place = self.checks, f"evaluation of {name} after step {step}"
        groups = group_members(records)
        with checks.groups.reading(place):
            check_groups(checks.groups, groups, step=step, batch_id=batch_id, samples=samples, failed=failed)
        with checks.prompts.reading(place):
            self.prompts.check_evaluation(name, records, place, failed=failed)
        self.sampled.add_evaluation(records, greedy=batch_id.endswith("-greedy"))
        context = replace(self.context, rollout=evaluated_rollout(self.config))
        self._check_trajectories(records, context, max_staleness=0)

    def _check_trajectories(
        self, records: Sequence[TrajectoryRecord], context: ReplayContext, max_staleness: int
    ) -> None:
        mismatch = token_mismatch if self.config.rollout.agent is None else agent_mismatch
        for record in [each for episodes in records for each in episodes.episode_trajectories]:
            with self.checks.tokens.reading(place_of(record)):
                self.checks.tokens.add_mismatch(record, mismatch(record.trajectory, context))
            self.checks.versions.add_mismatch(record, version_mismatch(record, max_staleness))


def evaluated_rollout(config: TrainConfig) -> RolloutConfig:
    """Return the rollout settings of a configuration with the limits and stop strings of its evaluations."""
    evaluation, rollout = config.evaluation, config.rollout
    changed: dict[str, Any] = {"max_response_tokens": evaluation.longest_response(rollout)}
    own = {name: getattr(evaluation, name) for name in ("max_tool_calls", "stop")}
    return rollout.model_copy(update=changed | {name: value for name, value in own.items() if value is not None})


def _count(row: Mapping[str, Any], name: str) -> int:
    """Return a count of a row; 0 if it is missing or not a whole number."""
    count = row.get(name, 0)
    return count if isinstance(count, int) else 0
