"""The training data of a run: steps played ahead of the learner, as far as the maximum staleness allows.

With `max_staleness` 0, a step starts once the learner has finished the previous one. With k, up to k more steps are
played at the same time: their episodes use the slots that the previous step's last episodes leave free, and continue to
sample while new weights arrive. Staleness is bounded from both sides: a step starts only when the policy has reached
version `step - max_staleness`, and the learner waits until its step is complete.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torl.base.types import Int32Array, Problem, Prompt, ScoredGroup, TrainingSample
from torl.components.data.sampler import Sampler
from torl.components.rewards import Reward
from torl.rollout.episode import EpisodePlayer
from torl.run.config import KlConfig, TrainConfig
from torl.run.display.console import Console
from torl.training.step import PlayedStep, StepPlayer
from torl.training.step_problems import StepProblems


class Experience:
    """The steps of a run, in order. Call `advance` after every update of the policy.

    Args:
        config: Configuration of the run.
        sampler: Source of prompts.
        player: Player of episodes.
        reward: Reward that grades them.
        console: Console for progress and warnings.
        ahead: Prompts that steps ahead of the checkpoint had taken, which are played first.
    """

    def __init__(
        self,
        config: TrainConfig,
        sampler: Sampler,
        player: EpisodePlayer,
        reward: Reward,
        console: Console,
        ahead: Sequence[Prompt] = (),
    ) -> None:
        self._steps = config.run.steps
        self._max_staleness = config.rollout.max_staleness
        self._problems = StepProblems(sampler, ahead, self._max_staleness)
        self._player = StepPlayer(config, self._problems, player, reward, console)
        self._next = 0
        self._playing: dict[int, asyncio.Task[PlayedStep]] = {}

    @property
    def position(self) -> Mapping[str, Any]:
        """State of the problems for a run that resumes after the last step yielded. It plays steps ahead again."""
        return self._problems.position

    async def steps(self, first: int) -> AsyncGenerator[PlayedStep, None]:
        """Yield the steps from `first` to the last, each once it is complete. `aclosing` cancels steps in flight.

        Raises:
            TorlError: The host failed. No later step is yielded.
        """
        self._next = first
        self.advance(first)
        try:
            for step in range(first, self._steps):
                played = await self._playing[step]
                del self._playing[step]
                self._problems.end(step)
                yield played
        finally:
            for task in self._playing.values():
                task.cancel()
            await asyncio.gather(*self._playing.values(), return_exceptions=True)

    def advance(self, policy_version: int) -> None:
        """Start the steps that may be sampled from version `policy_version` on."""
        while self._next < self._steps and self._next - policy_version <= self._max_staleness:
            self._playing[self._next] = asyncio.create_task(self._player.play(self._next))
            self._next += 1


def with_teacher_prompts(
    samples: Sequence[TrainingSample],
    groups: Sequence[ScoredGroup],
    kl: KlConfig,
    encode: Callable[[Problem], Prompt],
    max_tokens: int,
) -> tuple[list[TrainingSample], int]:
    """Add to each sample the same response after the prompt that `kl.prompt` returns (`reference_sample`).

    A sample that would be longer than `max_tokens` keeps the prompt of the policy: the model may have no positions
    beyond, and none of them is planned in its memory.

    Args:
        samples: Sample of each trajectory, without annotations.
        groups: Groups of the trajectories, in the same order. Each episode has a single trajectory.
        kl: Section with the function of the prompts.
        encode: Function that puts a problem into the run's template and encodes it.
        max_tokens: Maximum number of tokens of a prompt and its response (`config.longest_sample`).

    Returns:
        The samples, and the number of those whose other prompt is too long.

    Raises:
        ComponentError: The function raised an exception, or returned an invalid value.
    """
    if kl.prompt is None:
        return list(samples), 0
    teacher_prompt = kl.prompt.bind()
    members = [(member, group) for group in groups for member in group.members]
    found, too_long = [], 0
    for sample, (member, group) in zip(samples, members, strict=True):
        problem = teacher_prompt(member, group)
        if problem is not None:
            own = member.trajectory.prompt
            prompt = encode(problem)
            variants = {each.variant: each for each in (*prompt.variants, prompt)}
            token_ids = np.asarray(variants.get(own.variant, prompt).token_ids, np.int32)
            seen = _behind(token_ids, sample, len(own.token_ids))
            fits = len(seen) <= max_tokens
            sample = replace(sample, reference_sample=seen) if fits else sample
            too_long += not fits
        found.append(sample)
    return found, too_long


def _behind(prompt: Int32Array, sample: TrainingSample, prompt_tokens: int) -> TrainingSample:
    """Return the response of a sample, whose first `prompt_tokens` are its prompt, after another prompt."""
    nothing = np.zeros(len(prompt))
    return TrainingSample(
        token_ids=np.concatenate([prompt, sample.token_ids[prompt_tokens:]]),
        loss_mask=np.concatenate([nothing.astype(np.bool_), sample.loss_mask[prompt_tokens:]]),
        rollout_logprobs=np.concatenate([nothing.astype(np.float32), sample.rollout_logprobs[prompt_tokens:]]),
    )
