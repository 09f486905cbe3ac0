"""The checks of the steps that a run played with one configuration."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torl.apps.audit.advantages import check_advantages, recorded_masks
from torl.apps.audit.checks import group_members
from torl.apps.audit.evaluations import EvaluationAudit, count_of
from torl.apps.audit.groups import RecordedSelection, check_groups, check_selection, expected_trajectories, scored_group
from torl.apps.audit.logprobs import SampledTrajectories
from torl.apps.audit.metrics import check_row, step_metrics
from torl.config import TrainConfig
from torl.records import metric_names as names
from torl.records.files import METRICS_FILE, trajectory_file
from torl.records.rows import TrajectoryRecord
from torl.rewards import Reward


@dataclass(frozen=True, slots=True)
class StepAudit:
    """Compares steps with the results that follow from a configuration and their own records."""

    config: TrainConfig
    sampled: SampledTrajectories
    evaluations: EvaluationAudit

    def at_step(self, step: int) -> "StepAudit":
        """Return the audit with the configuration of a step, for `check_step`."""
        return replace(self, config=self.config.at_step(step))

    async def check_step(self, step: int, reward: Reward) -> None:
        """Check a step.

        Raises:
            RewardError: The reward failed.
        """
        shared = self.evaluations
        history, checks = shared.history, shared.checks
        row = history.step_rows.get(step)
        if row is None and not history.may_lack_row(step):
            checks.metrics.add(False, f"{METRICS_FILE}: expected a row of step {step}, found none")
        path = trajectory_file(history.directory, step)
        count = None
        with checks.metrics.reading(f"{METRICS_FILE}, step {step}"):
            count = expected_trajectories(self.config, row)
        records = await asyncio.to_thread(shared.read, path, count)
        if records:
            # Graders run in worker processes, so both proceed in parallel.
            await asyncio.gather(
                shared.grade_again(records, reward, path, self.config.rollout.max_response_tokens),
                asyncio.to_thread(self._check_records, step, records),
            )

    def _check_records(self, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Run the checks of a step that need neither graders nor weights."""
        shared, config, place = self.evaluations, self.config, f"step {step}"
        checks, prompts = shared.checks, shared.prompts
        row = shared.history.step_rows.get(step, {})
        groups = group_members(records)
        failed = count_of(row, names.FAILED_EPISODES)
        samples = config.rollout.samples_per_prompt
        with checks.groups.reading(place):
            check_groups(checks.groups, groups, step=step, batch_id=step, samples=samples, failed=failed)
        with checks.prompts.reading(place):
            prompts.check_step(records)
        context = replace(shared.context, rollout=config.rollout)
        shared.check_trajectories(records, context, config.rollout.max_staleness)
        self.sampled.add(records)
        with checks.advantages.reading(place):
            check_advantages(checks.advantages, records, config)
        with checks.selection.reading(place):
            selection = RecordedSelection.from_records(groups, step, config)
            check_selection(checks.selection, groups, step, selection)
        if not row:
            return
        with checks.metrics.reading(place):
            scored = [scored_group(members) for members in groups.values()]
            assert prompts.training is not None  # of a training run
            with_metadata, complete = prompts.with_metadata(scored, prompts.training)
            expected = step_metrics(with_metadata, step, config, metadata=complete) | dict(selection.counts)
            expected |= names.scheduled_values(shared.history.start_config_at(step).scheduled_values(step))
            if not config.ablation.shuffle_rewards:
                masks = recorded_masks(records, config)
                expected |= {names.masked(name): int(mask.sum()) for name, mask in masks.items()}
            check_row(checks.metrics, place, expected, row)
