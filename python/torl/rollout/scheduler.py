"""Many episodes at once: none waits for another, and groups come out as they finish."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torl.errors import ToolUnavailableError
from torl.rollout.episode import EpisodePlayer
from torl.seeds import derive_seed
from torl.types import Group, Prompt, Trajectory


@dataclass(slots=True)
class _Played:
    """The trajectories of a group that have ended."""

    prompt: Prompt
    left: int  # episodes that have not ended
    trajectories: list[Trajectory] = field(default_factory=list)

    def whole(self, max_response_tokens: int) -> Group:
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

    The player's slots say how many are in flight; the next one starts the moment there is room, whether or not the
    consumer is ready for it. Several calls may share the slots: the earlier one's episodes start first, and its last
    ones are played beside the next one's first. A group's trajectories are in the order of `sample`. `on_episode` is
    called for each episode as it ends.

    An episode that a tool spoilt is missing from its group, and a group of which nothing is left is not yielded;
    `on_spoilt` is called with the tool's error. More than the share of them that the player's settings allow is an
    error of the host.

    The first host error (`EngineError`, `SandboxError`) cancels every other episode and is raised. So does closing the
    generator or cancelling its consumer: when that has happened no request and no run is left. Use `aclosing`.
    """
    if samples_per_prompt < 1:
        raise ValueError("samples_per_prompt must be at least 1")
    slots = player.slots
    episodes = episodes_left = len(prompts) * samples_per_prompt
    spoilt = 0
    waiting = _episodes(prompts, samples_per_prompt)
    running: dict[asyncio.Task[Trajectory], _Played] = {}
    ended: asyncio.Queue[tuple[asyncio.Task[Trajectory], _Played]] = asyncio.Queue()

    def start_next() -> bool:
        request = next(waiting, None)
        if request is None:
            return False
        group, sample = request
        slots.begin()
        prompt = group.prompt
        if isinstance(batch_id, int):  # evaluations have the first variant of each prompt
            seed = player.settings.seed
            prompt = prompt.for_episode(derive_seed(seed, batch_id, prompt.problem.id, sample, "prompt variant"))
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
        while episodes_left > 0:
            task, group = await ended.get()
            try:
                group.trajectories.append(task.result())
            except ToolUnavailableError as error:
                spoilt += 1
                _require_few(spoilt, episodes, player.settings.max_failed_fraction, error)
                if on_failure is not None:
                    on_failure(error)
            if on_episode is not None:
                on_episode()
            episodes_left -= 1
            group.left -= 1
            if group.left == 0 and group.trajectories:
                yield group.whole(player.settings.max_response_tokens)
    finally:
        slots.remove(start_next)
        left = list(running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _require_few(spoilt: int, episodes: int, share: float, error: ToolUnavailableError) -> None:
    if spoilt > share * episodes:
        raise ToolUnavailableError(
            f"tools spoilt {spoilt} of {episodes} episodes, and rollout.max_failed_fraction allows {share:g}: {error}"
        ) from error


def _episodes(prompts: Iterable[Prompt], samples: int) -> Iterator[tuple[_Played, int]]:
    for prompt in prompts:
        group = _Played(prompt, samples)
        for sample in range(samples):
            yield group, sample
