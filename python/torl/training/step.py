"""One step's problems played, graded and selected: once, or until enough groups can be learned from."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from torl.config import TrainConfig
from torl.data.sampler import Sampler
from torl.errors import EngineError, ToolUnavailableError
from torl.records import metric_names as names
from torl.report.console import Console
from torl.rewards import Reward
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_group
from torl.rollout.scheduler import play_groups
from torl.seeds import derive_seed
from torl.training.health import require_working_tools
from torl.training.learner_rewards import with_normalized_rewards, with_shuffled_rewards
from torl.training.selection import prompts_for_next_round, select_groups
from torl.types import Prompt, ScoredGroup, Trajectory


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """The groups of a step, and which of them are learned from."""

    groups: tuple[ScoredGroup, ...]  # all that were played, as they were graded
    batch: tuple[ScoredGroup, ...]  # those that are learned from, with the rewards that the learner is told
    counts: dict[str, float]  # metrics of the selection
    seconds: float  # from its first episode to its last grade
    reward_seconds: float  # of these, how long no episode was left and grades were awaited

    @property
    def trajectories(self) -> list[Trajectory]:
        """All that were played."""
        members = [member for group in self.groups for member in group.members]
        return [each for member in members for each in member.trajectory.episode_trajectories]


@dataclass(frozen=True, slots=True)
class _Round:
    groups: tuple[ScoredGroup, ...]  # in the order of their prompts
    spoilt: tuple[ToolUnavailableError, ...]  # one for each episode that is missing
    reward_seconds: float


@dataclass(frozen=True, slots=True)
class StepPlayer:
    """What it takes to play a step."""

    config: TrainConfig
    sampler: Sampler
    player: EpisodePlayer
    reward: Reward
    console: Console

    async def play(self, step: int) -> PlayedStep:
        """Play the next prompts, once or until enough groups can be learned from, and say which of them are.

        Raises:
            TorlError: the host is broken: an engine, a tool or a reward. What a model does wrong never raises.
        """
        started = time.perf_counter()
        selection, wanted = self.config.selection, self.config.rollout.prompts_per_step
        groups: list[ScoredGroup] = []
        spoilt: list[ToolUnavailableError] = []
        count, rounds, reward_seconds = wanted, 0, 0.0
        while True:
            played = await self._play_round(step, self._next_prompts(count, groups))
            groups += played.groups
            spoilt += played.spoilt
            self.sampler.record_accuracies({group.prompt.problem.id: group.accuracy for group in played.groups})
            reward_seconds += played.reward_seconds
            rounds += 1
            told = self._shuffled_if_asked(step, groups)
            comparable = [group for group in told if len(group.members) >= self.config.min_group_size]
            chosen = select_groups(comparable, selection)
            missing = wanted - len(chosen.kept) if selection.dynamic_sampling else 0
            if missing <= 0 or rounds == selection.max_rounds or len(groups) == len(self.sampler):
                break
            count = min(prompts_for_next_round(wanted, len(chosen.kept), len(groups)), len(self.sampler))
        if missing > 0:
            self.console.warning(f"step {step + 1}: {len(chosen.kept)} of {wanted} groups kept after {rounds} rounds")
        if spoilt:
            self.console.warning(f"step {step + 1}: left out {len(spoilt)} spoilt episodes; the last: {spoilt[-1]}")
        batch = chosen.kept[:wanted]
        step_played = PlayedStep(
            groups=tuple(groups),
            batch=tuple(with_normalized_rewards(batch)) if self.config.algorithm.normalize_rewards else batch,
            counts={
                names.FAILED_EPISODES: len(spoilt),
                names.SELECTION_ROUNDS: rounds,
                names.SELECTION_FAILED: len(told) - len(comparable),
                names.SELECTION_ZERO_VARIANCE: chosen.uniform,
                names.SELECTION_OUT_OF_RANGE: chosen.outside_window,
                names.SELECTION_UNDECIDED: chosen.undecided,
                names.SELECTION_SURPLUS: len(chosen.kept) - len(batch),
                names.SELECTION_MISSING: max(0, missing),
            },
            seconds=time.perf_counter() - started,
            reward_seconds=reward_seconds,
        )
        require_allowed_versions(step_played.trajectories, step, self.config.rollout.max_staleness)
        await require_working_tools(self.player.tools, step_played.trajectories)
        await self.player.check()
        await self.reward.check()
        return step_played

    def _next_prompts(self, count: int, played: Sequence[ScoredGroup]) -> list[Prompt]:
        """A further round may reach into the next epoch, which holds this step's problems again: not those."""
        problems = {group.prompt.problem.id for group in played}
        return [prompt for prompt in self.sampler.take(count) if prompt.problem.id not in problems]

    def _shuffled_if_asked(self, step: int, groups: Sequence[ScoredGroup]) -> Sequence[ScoredGroup]:
        if not self.config.ablation.shuffle_rewards:
            return groups
        return with_shuffled_rewards(groups, derive_seed(self.config.run.seed, step, "shuffled rewards"))

    async def _play_round(self, step: int, prompts: Sequence[Prompt]) -> _Round:
        samples = self.config.rollout.samples_per_prompt
        with self.console.progress(f"step {step + 1}: episodes", len(prompts) * samples) as wait:
            return await _play_and_grade(self.player, self.reward, prompts, step, samples, wait.advance)


async def _play_and_grade(
    player: EpisodePlayer,
    reward: Reward,
    prompts: Sequence[Prompt],
    step: int,
    samples_per_prompt: int,
    on_episode: Callable[[], object],
) -> _Round:
    """Groups are graded while others still play; one of which nothing is left is missing."""
    grading: dict[str, asyncio.Task[ScoredGroup]] = {}
    spoilt: list[ToolUnavailableError] = []
    playing = play_groups(
        player,
        prompts,
        batch_id=step,
        samples_per_prompt=samples_per_prompt,
        on_episode=on_episode,
        on_failure=spoilt.append,
    )
    async with aclosing(playing), asyncio.TaskGroup() as tasks:
        async for group in playing:
            grading[group.prompt.problem.id] = tasks.create_task(score_group(reward, group, player.open_calls))
        last_episode = time.perf_counter()
    groups = tuple(grading[prompt.problem.id].result() for prompt in prompts if prompt.problem.id in grading)
    return _Round(groups, tuple(spoilt), time.perf_counter() - last_episode)


def require_allowed_versions(trajectories: Sequence[Trajectory], step: int, max_staleness: int) -> None:
    """Stop a run whose engine samples with other weights than the learner gave it for this step.

    Raises:
        EngineError: a token's policy version is outside [step - max_staleness, step].
    """
    oldest = max(0, step - max_staleness)
    for trajectory in trajectories:
        for version in set(trajectory.policy_versions_T[trajectory.loss_mask_T].tolist()):
            if not oldest <= version <= step:
                raise EngineError(
                    f"policy version {version} sampled tokens of {trajectory.group_id}; step {step} may hold versions "
                    f"{oldest} to {step} (rollout.max_staleness): the engine did not take the right weights"
                )
