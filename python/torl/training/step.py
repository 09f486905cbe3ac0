"""One step of a run: play its problems, grade the episodes, select the groups to train on, and record them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from torl.base.errors import EngineError, ToolUnavailableError
from torl.base.seeds import derive_seed
from torl.base.types import Float32Array, Prompt, ScoredGroup, ScoredTrajectory, TrainingSample, Trajectory
from torl.components.algorithms.requirements import requirements_of
from torl.components.rewards import Reward
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_group
from torl.rollout.scheduler import play_groups
from torl.run.config import AlgorithmConfig, RolloutConfig, TrainConfig
from torl.run.display.console import Console
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.training.health import require_working_tools
from torl.training.selection import (
    prompts_for_next_round,
    select_batch,
    with_normalized_rewards,
    with_shuffled_rewards,
)
from torl.training.step_problems import StepProblems


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """The groups of a step.

    Attributes:
        groups: All groups, as graded.
        batch: Groups to train on, with the rewards used for training.
        counts: Metrics of the selection.
        seconds: Time from the first episode to the last grade.
        reward_seconds: Part of that time in which all episodes had ended and grades were pending.
    """

    groups: tuple[ScoredGroup, ...]
    batch: tuple[ScoredGroup, ...]
    counts: dict[str, float]
    seconds: float
    reward_seconds: float

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of each group's prompt."""
        return [group.members[0].trajectory.prompt.token_ids for group in self.groups]

    @property
    def trajectories(self) -> list[Trajectory]:
        """All trajectories of the step, including branches."""
        members = [member for group in self.groups for member in group.members]
        return [each for member in members for each in member.trajectory.episode_trajectories]


@dataclass(frozen=True, slots=True)
class _Round:
    groups: tuple[ScoredGroup, ...]  # in the order of their prompts
    failures: tuple[ToolUnavailableError, ...]  # one for each dropped episode
    reward_seconds: float


@dataclass(frozen=True, slots=True)
class StepPlayer:
    """Plays the steps of a run.

    Attributes:
        config: Configuration of the run.
        problems: Source of the problems of each step.
        player: Player of episodes.
        reward: Reward that grades them.
        console: Console for progress and warnings.
    """

    config: TrainConfig
    problems: StepProblems
    player: EpisodePlayer
    reward: Reward
    console: Console

    async def play(self, step: int) -> PlayedStep:
        """Play the next prompts and select groups; with dynamic sampling, until enough groups are kept.

        Raises:
            TorlError: The host failed: an engine, a tool or a reward. Mistakes of the model never raise.
        """
        started = time.perf_counter()
        config = self.config.at_step(step)
        player = with_settings(self.player, config.rollout)
        selection, wanted = config.selection, config.rollout.prompts_per_step
        groups: list[ScoredGroup] = []
        failures: list[ToolUnavailableError] = []
        count, rounds, reward_seconds = wanted, 0, 0.0
        while True:
            prompts = self._next_prompts(step, count, groups)
            epoch = self.problems.epoch  # steps that are played ahead draw from later ones
            played = await self._play_round(player, step, prompts)
            groups += played.groups
            failures += played.failures
            accuracies = {group.prompt.problem.id: group.accuracy for group in played.groups}
            self.problems.record_accuracies(step, accuracies)
            reward_seconds += played.reward_seconds
            rounds += 1
            rewarded = self._apply_ablation(step, groups)
            chosen = select_batch(rewarded, config)
            if not chosen.missing or rounds == selection.max_rounds or len(groups) == len(self.problems):
                break
            count = min(prompts_for_next_round(wanted, chosen.kept, len(groups)), len(self.problems))
        if chosen.missing:
            self.console.warning(f"step {step + 1}: {chosen.kept} of {wanted} groups kept after {rounds} rounds")
        if failures:
            self.console.warning(
                f"step {step + 1}: dropped {len(failures)} failed episodes; last error: {failures[-1]}"
            )
        batch = chosen.batch
        step_played = PlayedStep(
            groups=tuple(groups),
            batch=tuple(with_normalized_rewards(batch)) if config.algorithm.normalize_rewards else batch,
            counts={
                names.FAILED_EPISODES: len(failures),
                names.SELECTION_ROUNDS: rounds,
                **chosen.counts,
                names.EPOCH: epoch,
            },
            seconds=time.perf_counter() - started,
            reward_seconds=reward_seconds,
        )
        require_allowed_versions(step_played.trajectories, step, self.config.rollout.max_staleness)
        await require_working_tools(self.player.tools, step_played.trajectories)
        await self.player.check()
        await self.reward.check()
        return step_played

    def _next_prompts(self, step: int, count: int, played: Sequence[ScoredGroup]) -> list[Prompt]:
        """Take the next prompts, except problems of this step, which a round that enters the next epoch may repeat."""
        problems = {group.prompt.problem.id for group in played}
        return [prompt for prompt in self.problems.take(step, count) if prompt.problem.id not in problems]

    def _apply_ablation(self, step: int, groups: Sequence[ScoredGroup]) -> Sequence[ScoredGroup]:
        if self.config.ablation.shuffle != "rewards":
            return groups
        return with_shuffled_rewards(groups, derive_seed(self.config.run.seed, step, "shuffled rewards"))

    async def _play_round(self, player: EpisodePlayer, step: int, prompts: Sequence[Prompt]) -> _Round:
        samples = self.config.rollout.samples_per_prompt
        with self.console.progress(f"step {step + 1}: episodes", len(prompts) * samples) as progress:
            return await _play_and_grade(player, self.reward, prompts, step, samples, progress.advance)


def with_settings(player: EpisodePlayer, rollout: RolloutConfig) -> EpisodePlayer:
    """Return the player with the settings of a step that may change with the step."""
    return player if rollout == player.settings else replace(player, settings=rollout)


async def _play_and_grade(
    player: EpisodePlayer,
    reward: Reward,
    prompts: Sequence[Prompt],
    step: int,
    samples_per_prompt: int,
    on_episode: Callable[[], object],
) -> _Round:
    """Play and grade groups. Grading overlaps with playing; groups without a complete episode are left out."""
    grading: dict[str, asyncio.Task[ScoredGroup]] = {}
    failures: list[ToolUnavailableError] = []
    playing = play_groups(
        player,
        prompts,
        batch_id=step,
        samples_per_prompt=samples_per_prompt,
        on_episode=on_episode,
        on_failure=failures.append,
    )
    async with aclosing(playing), asyncio.TaskGroup() as tasks:
        async for group in playing:
            grading[group.prompt.problem.id] = tasks.create_task(score_group(reward, group, player.open_calls))
        last_episode = time.perf_counter()
    groups = tuple(grading[prompt.problem.id].result() for prompt in prompts if prompt.problem.id in grading)
    return _Round(groups, tuple(failures), time.perf_counter() - last_episode)


def require_allowed_versions(trajectories: Sequence[Trajectory], step: int, max_staleness: int) -> None:
    """Raise if the engine sampled with other weights than the learner sent for this step.

    Raises:
        EngineError: The policy version of a token is outside [step - max_staleness, step].
    """
    oldest = max(0, step - max_staleness)
    for trajectory in trajectories:
        for version in set(trajectory.policy_versions_T[trajectory.loss_mask_T].tolist()):
            if not oldest <= version <= step:
                raise EngineError(
                    f"policy version {version} sampled tokens of {trajectory.group_id}; step {step} allows versions "
                    f"{oldest} to {step} (rollout.max_staleness): the engine did not load the right weights"
                )


def step_records(
    step: int, played: PlayedStep, samples: Sequence[TrainingSample], algorithm: AlgorithmConfig
) -> list[TrajectoryRecord]:
    """Make a record of every trajectory of a step; records of the batch contain advantages and their inputs.

    Args:
        step: Number of the step.
        played: Groups of the step.
        samples: Samples of the batch, in the order of its members.
        algorithm: Algorithm of the run.
    """
    batch = [member for group in played.batch for member in group.members]
    trajectories = [trajectory for member in batch for trajectory in member.trajectory.episode_trajectories]
    trained = {id(trajectory): sample for trajectory, sample in zip(trajectories, samples, strict=True)}

    def record(member: ScoredTrajectory) -> TrajectoryRecord:
        sample = trained.get(id(member.trajectory))
        if sample is None:
            return TrajectoryRecord(step, member.trajectory, member.grade)
        arrays = token_arrays(sample, len(member.trajectory), algorithm)
        return TrajectoryRecord(step, member.trajectory, member.grade, mean_advantage(sample), arrays)

    records = []
    for group in played.groups:
        for member in group.members:
            *branches, main = map(record, member.episode_trajectories)
            records.append(replace(main, branches=tuple(branches)))
    return records


def mean_advantage(sample: TrainingSample) -> float:
    """Return the mean advantage of the sampled tokens, which is the common one if all are equal."""
    if sample.advantages is None or not sample.loss_mask.any():
        return 0.0
    return float(sample.advantages[sample.loss_mask].mean(dtype=np.float64))


def token_arrays(sample: TrainingSample, response_tokens: int, algorithm: AlgorithmConfig) -> dict[str, Float32Array]:
    """Return per-token advantages and their inputs, by name; empty if the reward alone determines the advantages.

    Args:
        sample: Sample with advantages.
        response_tokens: Number of response tokens, which are the last tokens of the sample.
        algorithm: Algorithm of the run.
    """
    names = [*input_arrays(algorithm), *(["token_rewards"] if sample.token_rewards is not None else [])]
    arrays = {name: getattr(sample, name) for name in (*names, "advantages")} if names else {}
    return {name: array[len(sample) - response_tokens :] for name, array in arrays.items()}


def input_arrays(algorithm: AlgorithmConfig) -> list[str]:
    """Return the names of the arrays that an algorithm computes advantages from, without rewards of tokens."""
    required = requirements_of(algorithm.estimator.target)
    recorded = {
        "values": algorithm.needs_critic,
        "old_logprobs": algorithm.penalizes_rewards or required.old_logprobs,
        "ref_logprobs": algorithm.penalizes_rewards or algorithm.keeps_reference or required.reference,
        "entropies": required.entropies,
        "collision_probs": required.collision_probs,
    }
    return [name for name, is_input in recorded.items() if is_input]
