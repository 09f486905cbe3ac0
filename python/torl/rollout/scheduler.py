"""Many episodes at once: none waits for another, and groups come out as they finish."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from torl.rollout.episode import EpisodePlayer
from torl.types import Prompt, Trajectory


@dataclass(slots=True)
class _Group:
    prompt: Prompt
    samples: int
    trajectories: list[Trajectory] = field(default_factory=list)


async def play_groups(
    player: EpisodePlayer,
    prompts: Iterable[Prompt],
    *,
    step: int | str,
    samples_per_prompt: int,
    max_concurrent_episodes: int,
    on_episode: Callable[[Trajectory], None] | None = None,
) -> AsyncGenerator[list[Trajectory], None]:
    """Play `samples_per_prompt` episodes of each prompt; yield each group as soon as its last episode ends.

    Up to `max_concurrent_episodes` are in flight; the next one starts the moment one ends, whether or not the
    consumer is ready for it. A group's trajectories are in the order of `sample`. `on_episode` is called for
    each episode as it ends.

    The first host error (`EngineError`, `SandboxError`) cancels every other episode and is raised. So does closing the
    generator or cancelling its consumer: when that has happened no request and no run is left. Use `aclosing`.
    """
    if samples_per_prompt < 1 or max_concurrent_episodes < 1:
        raise ValueError("samples_per_prompt and max_concurrent_episodes must be at least 1")
    waiting = _episodes(prompts, samples_per_prompt)
    running: dict[asyncio.Task[Trajectory], _Group] = {}
    ended: asyncio.Queue[tuple[asyncio.Task[Trajectory], _Group]] = asyncio.Queue()
    stopped = False

    def start_next() -> bool:
        request = next(waiting, None)
        if request is None:
            return False
        group, sample = request
        task = asyncio.ensure_future(player.play(group.prompt, step=step, sample=sample))
        running[task] = group
        task.add_done_callback(end)
        return True

    def end(task: asyncio.Task[Trajectory]) -> None:
        nonlocal stopped
        ended.put_nowait((task, running.pop(task)))
        if task.cancelled() or task.exception() is not None:
            stopped = True
            for other in running:
                other.cancel()
        if not stopped:
            start_next()

    try:
        while len(running) < max_concurrent_episodes and start_next():
            pass
        while running or not ended.empty():
            task, group = await ended.get()
            trajectory = task.result()
            if on_episode is not None:
                on_episode(trajectory)
            group.trajectories.append(trajectory)
            if len(group.trajectories) == group.samples:
                yield sorted(group.trajectories, key=lambda trajectory: trajectory.sample)
    finally:
        stopped = True
        left = list(running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _episodes(prompts: Iterable[Prompt], samples: int) -> Iterator[tuple[_Group, int]]:
    for prompt in prompts:
        group = _Group(prompt, samples)
        for sample in range(samples):
            yield group, sample
