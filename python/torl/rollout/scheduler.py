"""Concurrent episodes of many prompts, yielded as groups."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torl.base.errors import ToolUnavailableError
from torl.base.seeds import derive_seed
from torl.base.types import Group, Prompt, Trajectory
from torl.rollout.episode import EpisodePlayer

_MIN_ALLOWED_FAILURES = 3  # of any number of episodes, but at most half of them


@dataclass(slots=True)
class _PendingGroup:
    """A group whose episodes have not all ended."""

    prompt: Prompt
    pending: int
    trajectories: list[Trajectory] = field(default_factory=list)

    def group(self, max_response_tokens: int) -> Group:
        """The group, in the order of its samples."""
        trajectories = sorted(self.trajectories, key=lambda trajectory: trajectory.sample_index)
        return Group(self.prompt, tuple(trajectories), max_response_tokens)


async def play_groups(
    player: EpisodePlayer,
    prompts: Sequence[Prompt],
    *,
    batch_id: int | str,
    samples_per_prompt: int,
    on_episode: Callable[[], object] | None = None,
    on_failure: Callable[[ToolUnavailableError], object] | None = None,
) -> AsyncGenerator[Group, None]:
    """Play `samples_per_prompt` episodes of each prompt; yield each group as soon as its last episode ends.

    The player's slots limit the number of episodes in flight, and the next episode starts as soon as there is room,
    whether or not the consumer is ready. Several calls may share the slots: the episodes of the earlier call start
    first, and its last ones overlap with the first of the next call.

    Failed episodes are dropped from their groups, and empty groups are not yielded. The first host error cancels all
    other episodes. So does closing the generator or cancelling its consumer, after which no request and no tool call
    is left. Use `aclosing`.

    Args:
        player: The player of the episodes.
        prompts: The prompts.
        batch_id: Number of a training step, or name of an evaluation.
        samples_per_prompt: Number of episodes per prompt.
        on_episode: Callback for each episode that ends.
        on_failure: Callback with the error of each failed episode.

    Raises:
        ToolUnavailableError: More episodes failed than the player's settings allow.
        EngineError, SandboxError: The host failed.
    """
    if samples_per_prompt < 1:
        raise ValueError("samples_per_prompt must be at least 1")
    slots = player.slots
    episodes = pending = len(prompts) * samples_per_prompt
    failed = 0
    unstarted = _episodes(prompts, samples_per_prompt)
    running: dict[asyncio.Task[Trajectory], _PendingGroup] = {}
    ended: asyncio.Queue[tuple[asyncio.Task[Trajectory], _PendingGroup]] = asyncio.Queue()

    def start_next() -> bool:
        episode = next(unstarted, None)
        if episode is None:
            return False
        group, sample = episode
        slots.begin()
        prompt = group.prompt
        if isinstance(batch_id, int):  # evaluations have the first variant of each prompt
            prompt = prompt.for_episode(derive_seed(player.seed, batch_id, prompt.problem.id, sample, "prompt variant"))
        task = asyncio.ensure_future(player.play(prompt, batch_id=batch_id, sample=sample))
        running[task] = group
        task.add_done_callback(end)
        return True

    def end(task: asyncio.Task[Trajectory]) -> None:
        ended.put_nowait((task, running.pop(task)))
        if task.cancelled() or not isinstance(task.exception(), ToolUnavailableError | None):
            slots.remove(start_next)
            for other in running:
                other.cancel()
        slots.end()

    try:
        slots.add(start_next)
        while pending > 0:
            task, group = await ended.get()
            try:
                group.trajectories.append(task.result())
            except ToolUnavailableError as error:
                failed += 1
                _require_few_failures(failed, episodes, player.settings.max_failed_fraction, error)
                if on_failure is not None:
                    on_failure(error)
            if on_episode is not None:
                on_episode()
            pending -= 1
            group.pending -= 1
            if group.pending == 0 and group.trajectories:
                yield group.group(player.settings.max_response_tokens)
    finally:
        slots.remove(start_next)
        unfinished = list(running)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def _require_few_failures(failed: int, episodes: int, limit: float, error: ToolUnavailableError) -> None:
    allowed = max(limit * episodes, min(_MIN_ALLOWED_FAILURES, episodes // 2)) if limit > 0 else 0
    if failed > allowed:
        raise ToolUnavailableError(
            f"{failed} of {episodes} episodes failed (rollout.max_failed_fraction = {limit:g}); last error: {error}"
        ) from error


def _episodes(prompts: Iterable[Prompt], samples: int) -> Iterator[tuple[_PendingGroup, int]]:
    for prompt in prompts:
        group = _PendingGroup(prompt, samples)
        for sample in range(samples):
            yield group, sample
