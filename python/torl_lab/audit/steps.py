"""The checks of the steps that a run played with one configuration."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from torl.components.rewards import Reward
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE, trajectory_file
from torl.run.records.tokens import read_token_numbers
from torl_lab.audit.advantages import check_advantages
from torl_lab.audit.again import components_called_again
from torl_lab.audit.batch import LearnedBatch, check_groups, check_selection, expected_trajectories, scored_group
from torl_lab.audit.checks import find_problems
from torl_lab.audit.evaluations import EvaluationAudit, count_of
from torl_lab.audit.learning import batch_metrics, check_learner_numbers, check_learning_rate, critic_metrics
from torl_lab.audit.metric_rows import has_counts, measured_metrics
from torl_lab.audit.metrics import check_row, step_metrics, unknown_metrics
from torl_lab.audit.naive.dynamics import naive_scheduled
from torl_lab.audit.problem_sets import ProblemOrder
from torl_lab.audit.updates import check_updates


@dataclass(frozen=True, slots=True)
class StepAudit:
    """Compares steps with the results that follow from a configuration and their own records."""

    config: TrainConfig
    order: ProblemOrder
    evaluations: EvaluationAudit
    critic_steps: dict[int, int]
    """Numbers of the critic's optimizer steps in the steps that were checked."""

    @classmethod
    def open(
        cls,
        config: TrainConfig,
        order: ProblemOrder,
        evaluations: EvaluationAudit,
        first_step: int,
        critic_steps: dict[int, int],
    ) -> Self:
        """Read the problems to train on. Their order and the critic's steps continue those before."""
        prompts = evaluations.model.prompts(config.data.train, config.data)
        order.open(config, prompts, first_step, evaluations.prompts.source_has_changed)
        for name in components_called_again(config):
            evaluations.checks.selection.add_note(f"{name} has no second implementation: called a second time")
        return cls(config, order, evaluations, critic_steps)

    async def check_step(self, step: int, reward: Reward) -> None:
        """Check a step.

        Raises:
            RewardError: The reward failed.
        """
        shared, config = self.evaluations, self.config.at_step(step)
        history, checks = shared.history, shared.checks
        row = history.rows.steps.get(step)
        if row is None and not history.may_lack_row(step):
            checks.metrics.add(False, f"{METRICS_FILE}: expected a row of step {step}, found none")
        path = trajectory_file(history.directory, step)
        count = None
        with checks.metrics.reading(f"{METRICS_FILE}, step {step}"):
            count = expected_trajectories(config, row)
        records = await asyncio.to_thread(shared.read, path, count)
        numbers = partial(read_token_numbers, history.directory, step)
        batch = LearnedBatch(records, step, config, numbers)
        with checks.prompts.reading(f"problems of step {step}"):
            await asyncio.to_thread(
                self.order.check_step,
                batch,
                failed=1 if row is None else count_of(row, names.FAILED_EPISODES),  # without a row, there may be some
                source_has_changed=shared.prompts.source_has_changed,
            )
        if records:
            assert shared.prompts.training is not None  # of a training run
            problems = await asyncio.to_thread(find_problems, records, shared.prompts.training)
            # Graders run in worker processes, so both proceed in parallel.
            await asyncio.gather(
                shared.grade_again(records, reward, path, config.rollout.max_response_tokens, problems),
                asyncio.to_thread(self._check_records, batch, row or {}),
            )

    def _check_records(self, batch: LearnedBatch, row: Mapping[str, Any]) -> None:
        """Run the checks of a step that need neither graders nor weights."""
        shared, config, step, place = self.evaluations, batch.config, batch.step, f"step {batch.step}"
        checks, prompts, records = shared.checks, shared.prompts, batch.records
        failed = count_of(row, names.FAILED_EPISODES)
        samples = config.rollout.samples_per_prompt
        with checks.groups.reading(place):
            check_groups(checks.groups, batch.groups, step=step, batch_id=step, samples=samples, failed=failed)
        with checks.prompts.reading(place):
            prompts.check_step(records)
        shared.check_trajectories(
            records, replace(shared.context, rollout=config.rollout), config.rollout.max_staleness
        )
        learned = None
        with checks.metrics.reading(place):
            learned = frozenset(batch.keys[index] for index in batch.learned)
        shared.sampled.add_step(batch, learned or ())
        with checks.advantages.reading(place):
            check_advantages(checks.advantages, batch)
        with checks.updates.reading(place):
            if not shared.history.may_lack_numbers(step):
                check_updates(checks.updates, batch)
                shared.sampled.add_updates(batch)
        selected = False
        with checks.selection.reading(place):
            check_selection(checks.selection, batch)
            selected = True
        if not row or learned is None or not selected:  # the counts of the metrics follow from the selection
            return
        with checks.metrics.reading(place):
            scored = [scored_group(members) for members in batch.groups.values()]
            assert prompts.training is not None  # of a training run
            with_metadata, complete = prompts.with_metadata(scored, prompts.training)
            unknown = unknown_metrics(scored, metadata=complete)
            expected = step_metrics(with_metadata, step, config, unknown) | dict(batch.selection.counts)
            expected |= names.scheduled_values(naive_scheduled(shared.history.start_config_at(step), step))
            of_critic, self.critic_steps[step] = critic_metrics(batch, self._critic_steps_before(step))
            expected |= batch_metrics(batch) | of_critic
            if self.order.epoch is not None and not config.selection.dynamic_sampling:
                expected |= {names.EPOCH: self.order.epoch, names.SELECTION_ROUNDS: 1}
            measured, counted = measured_metrics(config, learned=bool(learned))
            check_row(checks.metrics, place, expected, row, (*unknown, *counted), measured)
            checks.metrics.add(has_counts(row, config), f"{place}: expected counts of the run's agent or environment")
            has_reference = learned and config.algorithm.needs_reference
            checks.metrics.expect(f"{place}, has {names.REFERENCE_KL}", bool(has_reference), names.REFERENCE_KL in row)
            check_learner_numbers(checks.metrics, row, batch)
        check_learning_rate(checks.metrics, shared.history, step)

    def _critic_steps_before(self, step: int) -> int | None:
        """Return the number of the critic's optimizer steps before a step; None if it is unknown."""
        known = [self.critic_steps.get(each) for each in range(step)]
        return None if None in known else sum(count for count in known if count is not None)
