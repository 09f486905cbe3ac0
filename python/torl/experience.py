"""What a run learns from: each step's problems played, graded and selected, ahead of the learner as far as allowed.

With `max_staleness` 0 a step is played when the learner has finished the last one. With k, up to k further steps are
played meanwhile: their episodes take the places that the last ones of the step before leave free, and go on sampling
while new weights arrive. How far ahead a run is, is bounded from both sides: no step begins before the policy is that
of `step - max_staleness` or later, and the learner waits for its step to be whole.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from torl.config import TrainConfig
from torl.errors import EngineError, SandboxError
from torl.types import Grade, Outcome, OutcomeStatus, Trajectory

if TYPE_CHECKING:
    from torl.data.sampler import PromptSampler
    from torl.metrics.console import Console
    from torl.reward.grader import GraderPool
    from torl.rollout.episode import EpisodePlayer
    from torl.sandbox import SandboxPool
    from torl.types import Prompt

# Fewer calls than this say nothing about whether the tool works; above, half of them crashing is no accident.
_CALLS_TO_JUDGE = 16
_CRASH_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """The trajectories of a step, and which of them enter its batch."""

    trajectories: list[Trajectory]
    grades: list[Grade]
    rewards: list[float]
    kept: list[int]  # indices of those in the batch, whole groups
    counts: dict[str, float]  # metrics of the selection
    normalize: bool
    seconds: float  # from its first episode to its last

    def batch(self) -> tuple[list[Trajectory], list[float], list[str]]:
        """Trajectories, rewards and groups of the batch."""
        from torl.algorithms.rewards import normalize_rewards

        trajectories = [self.trajectories[index] for index in self.kept]
        rewards = [self.rewards[index] for index in self.kept]
        return (
            trajectories,
            normalize_rewards(rewards).tolist() if self.normalize else rewards,
            [trajectory.group for trajectory in trajectories],
        )


class Experience:
    """The steps of a run, in order. Tell it of each new policy with `advance`."""

    def __init__(
        self,
        config: TrainConfig,
        sampler: "PromptSampler",
        player: "EpisodePlayer",
        grader: "GraderPool",
        sandbox: "SandboxPool",
        console: "Console",
    ) -> None:
        self._config = config
        self._sampler = sampler
        self._player = player
        self._grader = grader
        self._sandbox = sandbox
        self._console = console
        self._version = 0
        self._next = 0  # the step that begins next
        self._playing: dict[int, asyncio.Task[PlayedStep]] = {}
        self._positions: dict[int, Mapping[str, Any]] = {}  # where the data stood when a step began

    async def steps(self, first: int) -> AsyncGenerator[PlayedStep, None]:
        """The steps from `first` to the last, each when it is whole. Close it (`aclosing`) to end what is in flight.

        Raises:
            EngineError, SandboxError: the host is broken. No later step is given out.
        """
        self._next = first
        self.advance(first)
        try:
            for step in range(first, self._config.run.steps):
                played = await self._playing[step]
                del self._playing[step], self._positions[step]
                yield played
        finally:
            for task in self._playing.values():
                task.cancel()
            await asyncio.gather(*self._playing.values(), return_exceptions=True)

    def advance(self, policy_version: int) -> None:
        """The engine samples with this version from now on: begin the steps that it allows."""
        self._version = policy_version
        while self._next < self._config.run.steps and self._next - policy_version <= self._config.rollout.max_staleness:
            self._playing[self._next] = asyncio.create_task(self.play(self._next))
            self._next += 1

    def position(self, step: int) -> Mapping[str, Any]:
        """Where in the data a run goes on that resumes at `step`: what was played ahead of it is played again."""
        return self._positions.get(step) or self._sampler.state_dict()

    async def play(self, step: int) -> PlayedStep:
        """Play prompts, once or until enough groups can be learned from, and say which of them are."""
        from torl.algorithms.selection import prompts_for_next_round, select_groups
        from torl.metrics import names

        started = time.perf_counter()
        self._positions[step] = self._sampler.state_dict()
        selection, wanted = self._config.selection, self._config.rollout.prompts_per_step
        trajectories: list[Trajectory] = []
        grades: list[Grade] = []
        problems: set[str] = set()
        count, rounds = wanted, 0
        while True:
            # A further round may reach into the next epoch, which holds this step's problems again.
            prompts = [prompt for prompt in self._sampler.take(count) if prompt.problem.id not in problems]
            problems |= {prompt.problem.id for prompt in prompts}
            more_trajectories, more_grades = await self._play_and_grade(step, prompts)
            trajectories += more_trajectories
            grades += more_grades
            rounds += 1
            rewards = self._rewards(step, grades)
            groups = [trajectory.group for trajectory in trajectories]
            chosen = select_groups(rewards, grades, groups, selection)
            kept = chosen.groups(groups)
            missing = wanted - len(kept) if selection.dynamic_sampling else 0
            if missing <= 0 or rounds == selection.max_rounds or len(problems) == len(self._sampler):
                break
            count = min(prompts_for_next_round(wanted, len(kept), len(problems)), len(self._sampler))
        self._require_allowed_policy(step, trajectories)
        await self._require_working_tool(trajectories)
        if missing > 0:
            self._console.warning(f"step {step + 1}: {len(kept)} of {wanted} groups kept after {rounds} rounds")
        batch = set(kept[:wanted])
        return PlayedStep(
            trajectories=trajectories,
            grades=grades,
            rewards=rewards,
            kept=[index for index, group in enumerate(groups) if group in batch],
            counts={
                names.SELECTION_ROUNDS: rounds,
                names.SELECTION_UNIFORM: chosen.uniform,
                names.SELECTION_OUTSIDE_WINDOW: chosen.outside_window,
                names.SELECTION_SURPLUS: len(kept) - len(batch),
                names.SELECTION_MISSING: max(0, missing),
            },
            normalize=self._config.algorithm.normalize_rewards,
            seconds=time.perf_counter() - started,
        )

    async def _play_and_grade(self, step: int, prompts: "Sequence[Prompt]") -> tuple[list[Trajectory], list[Grade]]:
        """The trajectories of these prompts, in their order; groups are graded while others still play."""
        from torl.rollout.scheduler import play_groups

        samples = self._config.rollout.samples_per_prompt
        grading: dict[str, asyncio.Task[list[Grade]]] = {}
        finished: dict[str, list[Trajectory]] = {}
        with self._console.wait(f"step {step + 1}: episodes", len(prompts) * samples) as wait:
            groups = play_groups(
                self._player,
                prompts,
                step=step,
                samples_per_prompt=samples,
                on_episode=lambda _: wait.advance(),
            )
            async with aclosing(groups), asyncio.TaskGroup() as tasks:
                async for group in groups:
                    problem = group[0].prompt.problem.id
                    finished[problem] = group
                    grading[problem] = tasks.create_task(self._grader.grade_batch(group))
        order = [prompt.problem.id for prompt in prompts]
        trajectories = [trajectory for problem in order for trajectory in finished[problem]]
        grades = [grade for problem in order for grade in grading[problem].result()]
        return trajectories, self._punish_length(trajectories, grades)

    def _punish_length(self, trajectories: Sequence[Trajectory], grades: Sequence[Grade]) -> list[Grade]:
        """The grades with what the length of a response costs taken from its reward."""
        from torl.algorithms.rewards import overlong_punishment

        limit, reward = self._config.rollout.max_response_tokens, self._config.reward
        punishments = overlong_punishment(list(map(len, trajectories)), limit, reward.overlong_buffer)
        return [
            replace(grade, reward=grade.reward + reward.overlong_penalty * float(punishment)) if punishment else grade
            for grade, punishment in zip(grades, punishments, strict=True)
        ]

    def _require_allowed_policy(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """Stop rather than learn from samples of a policy that is older, or newer, than the step allows."""
        oldest = max(0, step - self._config.rollout.max_staleness)
        for trajectory in trajectories:
            for version in set(trajectory.policy_versions_T[trajectory.loss_mask_T].tolist()):
                if not oldest <= version <= step:
                    raise EngineError(
                        f"policy version {version} sampled tokens of step {step}, which may only hold those of "
                        f"versions {oldest} to {step}: the engine does not have the learner's weights"
                    )

    async def _require_working_tool(self, trajectories: Sequence[Trajectory]) -> None:
        """Stop rather than train with a tool that no longer works, whatever its runs report."""
        await asyncio.to_thread(self._sandbox.self_test)
        outcomes: list[Outcome] = [call.outcome for trajectory in trajectories for call in trajectory.tool_calls]
        crashes = sum(outcome.status is OutcomeStatus.CRASH for outcome in outcomes)
        if len(outcomes) >= _CALLS_TO_JUDGE and crashes > _CRASH_SHARE * len(outcomes):
            raise SandboxError(f"{crashes} of {len(outcomes)} tool calls crashed their worker in one step")

    def _rewards(self, step: int, grades: Sequence[Grade]) -> list[float]:
        from torl.rollout.seeds import derive_seed

        rewards = [grade.reward for grade in grades]
        if self._config.control.shuffle_rewards:
            Random(derive_seed(self._config.run.seed, step, "shuffled rewards")).shuffle(rewards)
        return rewards
