"""Many episodes at once: none waits for another, and groups come out as they finish."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torl.rollout.episode import EpisodePlayer
from torl.types import Group, Prompt, Trajectory


@dataclass(slots=True)
class _Played:
    """The trajectories of a group that have ended."""

    prompt: Prompt
    samples: int
    trajectories: list[Trajectory] = field(default_factory=list)

    def whole(self, max_response_tokens: int) -> Group:
        """The group, in the order of its samples."""
        trajectories = sorted(self.trajectories, key=lambda trajectory: trajectory.sample)
        return Group(self.prompt, tuple(trajectories), max_response_tokens)


async def play_groups(
    player: EpisodePlayer,
    prompts: Sequence[Prompt],
    *,
    series: int | str,
    samples_per_prompt: int,
    on_episode: Callable[[], object] | None = None,
) -> AsyncGenerator[Group, None]:
    """Play `samples_per_prompt` episodes of each prompt; yield each group as soon as its last episode ends.

    The player's slots say how many are in flight; the next one starts the moment there is room, whether or not the
    consumer is ready for it. Several calls may share the slots: the earlier one's episodes start first, and its last
    ones are played beside the next one's first. A group's trajectories are in the order of `sample`. `on_episode` is
    called for each episode as it ends.

    The first host error (`EngineError`, `SandboxError`) cancels every other episode and is raised. So does closing the
    generator or cancelling its consumer: when that has happened no request and no run is left. Use `aclosing`.
    """
    if samples_per_prompt < 1:
        raise ValueError("samples_per_prompt must be at least 1")
    slots = player.slots
    trajectories_left = len(prompts) * samples_per_prompt
    waiting = _episodes(prompts, samples_per_prompt)
    running: dict[asyncio.Task[Trajectory], _Played] = {}
    ended: asyncio.Queue[tuple[asyncio.Task[Trajectory], _Played]] = asyncio.Queue()

    def start_next() -> bool:
        request = next(waiting, None)
        if request is None:
            return False
        group, sample = request
        slots.begin()
        task = asyncio.ensure_future(player.play(group.prompt, series=series, sample=sample))
        running[task] = group
        task.add_done_callback(end)
        return True

    def end(task: asyncio.Task[Trajectory]) -> None:
        ended.put_nowait((task, running.pop(task)))
        if task.cancelled() or task.exception() is not None:
            slots.remove(start_next)
            for other in running:
                other.cancel()
        slots.end()

    try:
        slots.add(start_next)
        while trajectories_left > 0:
            task, group = await ended.get()
            trajectory = task.result()
            if on_episode is not None:
                on_episode()
            trajectories_left -= 1
            group.trajectories.append(trajectory)
            if len(group.trajectories) == group.samples:
                yield group.whole(player.settings.max_response_tokens)
    finally:
        slots.remove(start_next)
        left = list(running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _episodes(prompts: Iterable[Prompt], samples: int) -> Iterator[tuple[_Played, int]]:
    for prompt in prompts:
        group = _Played(prompt, samples)
        for sample in range(samples):
            yield group, sample
