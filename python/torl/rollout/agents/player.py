"""Plays episodes by agent programs, each at an address of its own."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from torl.agents import Agent
from torl.errors import AgentProgramError, ComponentError
from torl.records import metric_names as names
from torl.rollout.agents.episode import AgentEpisode, AgentSettings
from torl.rollout.agents.server import AgentServer
from torl.rollout.episode import EpisodePlayer
from torl.types import Prompt, Trajectory


@dataclass(slots=True)
class AgentResources:
    """What episodes of agent programs have besides; one for all players of a run."""

    agent: Agent
    settings: AgentSettings
    door: AgentServer
    counts: Counter[str] = field(default_factory=Counter)
    running: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.running = asyncio.Semaphore(self.settings.limits.max_concurrent)


@dataclass(slots=True, kw_only=True)
class AgentPlayer(EpisodePlayer):
    """A player whose episodes are those of an agent program."""

    agents: AgentResources

    @classmethod
    def from_player(cls, player: EpisodePlayer, agents: AgentResources) -> "AgentPlayer":
        """A player with the engine and the model of another."""
        return cls(**{each.name: getattr(player, each.name) for each in fields(EpisodePlayer)}, agents=agents)

    def metrics(self) -> dict[str, float]:
        """Return the counts of failed programs and of requests, and the metrics of the agent itself."""
        failed = {name: self.agents.counts[name] for name in ("crashed", "timed_out", "silent")}
        return names.agent_counts({**self.agents.agent.metrics(), **failed, **self.agents.door.counts()})

    async def check(self) -> None:
        await self.agents.agent.check()

    async def play(self, prompt: Prompt, *, batch_id: int | str, sample: int) -> Trajectory:
        """Start the program, answer what it asks, and give what was sampled, by token sequences.

        Raises:
            AgentProgramError: the program failed or asked for nothing; the episode is spoilt.
            EngineError: the host is broken, whatever the program made of it.
        """
        async with self.agents.running:
            episode = AgentEpisode(self, self.agents.settings, prompt, batch_id, sample)
            try:
                answer = await self._answer(episode)
            finally:
                await self.agents.door.close_episode(episode)
                episode.close()
        trajectory = episode.trajectory(answer)
        if trajectory is None:
            self.agents.counts["silent"] += 1
            raise AgentProgramError(f"the agent program ended without a turn of the model, on problem {_name(episode)}")
        return trajectory

    async def _answer(self, episode: AgentEpisode) -> str:
        """What the program answers; what the model said last where it says nothing."""
        agents, limits = self.agents, self.agents.settings.limits
        url = agents.door.open_episode(episode)
        playing: asyncio.Future[Any] = asyncio.ensure_future(agents.agent.run(episode.prompt.problem, url))
        limit: asyncio.Future[Any] = asyncio.ensure_future(_own_seconds(episode, limits.timeout_seconds))
        ends: set[asyncio.Future[Any]] = {playing, limit, episode.broken}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if episode.broken.done():
                episode.broken.result()
            if not playing.done():
                agents.counts["timed_out"] += 1
                return self._failed(episode, f"took more than {limits.timeout_seconds:g} s (timeout_seconds)")
            error = None if playing.cancelled() else playing.exception()
            if error is not None and not isinstance(error, AgentProgramError | ComponentError):
                raise error
            if playing.cancelled() or error is not None:
                agents.counts["crashed"] += 1
                how = "was cancelled" if error is None else f"failed: {error}"
                return self._failed(episode, how, error)
            answer = playing.result()
        finally:
            for task in (playing, limit):
                task.cancel()
            await asyncio.gather(playing, limit, return_exceptions=True)
        return (episode.last_message or "") if answer is None else answer

    def _failed(self, episode: AgentEpisode, how: str, error: BaseException | None = None) -> str:
        if self.agents.settings.limits.on_failure == "grade_empty":
            return ""
        raise AgentProgramError(f"problem {_name(episode)}: the agent program {how}") from error


async def _own_seconds(episode: AgentEpisode, seconds: float) -> None:
    """Wait until the program has taken so long, less what it waited for the model."""
    while True:
        left = seconds - episode.own_seconds
        if left <= 0:
            return
        await asyncio.sleep(left)


def _name(episode: AgentEpisode) -> str:
    return f"{episode.prompt.problem.id!r}, sample {episode.sample}"
