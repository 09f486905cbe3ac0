"""Episodes of agent programs: each program runs at its own URL of a local server."""

import asyncio
import resource
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from torl.base.errors import AgentProgramError, ComponentError, ConfigError, DataError
from torl.base.types import Problem, Prompt, Trajectory
from torl.components.agents import Agent, AgentLimits
from torl.components.text.templates import Conversation
from torl.rollout.agents.episode import AgentEpisode, AgentSettings
from torl.rollout.agents.messages import PromptRenderer
from torl.rollout.agents.server import AgentServer
from torl.rollout.episode import EpisodePlayer
from torl.run.config import ModelRunConfig
from torl.run.records import metric_names as names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MIN_BODY_BYTES = 4 << 20  # maximum size of a request, for schemas of tools and fields that templates do not read
_BYTES_PER_TOKEN = 64  # of a request, far more than text needs, escaped and with thinking
_FILES_OF_RUN = 512  # logs, records, sockets of the engine and the learner, tools
_FILES_PER_PROGRAM = 6  # of a command: two pipes, its input, its process
_CONNECTIONS_PER_PROGRAM = 2  # at least; both ends of a function's connection are open in this process


@dataclass(slots=True)
class AgentResources:
    """The agent and its server, shared by all players of a run."""

    agent: Agent
    settings: AgentSettings
    server: AgentServer
    counts: Counter[str] = field(default_factory=Counter)
    running: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.running = asyncio.Semaphore(self.settings.limits.max_concurrent)


@dataclass(slots=True, kw_only=True)
class AgentPlayer(EpisodePlayer):
    """A player whose episodes are driven by an agent program."""

    agents: AgentResources

    @classmethod
    def from_player(cls, player: EpisodePlayer, agents: AgentResources) -> "AgentPlayer":
        """A player with the resources of another player."""
        return cls(**{each.name: getattr(player, each.name) for each in fields(EpisodePlayer)}, agents=agents)

    def metrics(self) -> dict[str, float]:
        """The metrics of every player, and counts of programs and requests."""
        failures = {name: self.agents.counts[name] for name in ("crashed", "timed_out", "no_request")}
        counts = {**self.agents.agent.metrics(), **failures, **self.agents.server.counts()}
        return EpisodePlayer.metrics(self) | names.agent_count.row(counts)

    async def check(self) -> None:
        await self.agents.agent.check()

    async def play(self, prompt: Prompt, *, batch_id: int | str, sample: int) -> Trajectory:
        """Run the program, serve its requests, and return the sampled token sequences.

        Raises:
            AgentProgramError: The program failed or sent no request; only this episode fails.
            EngineError: The host failed, even if the program handled the error.
        """
        async with self.agents.running:
            episode = AgentEpisode(self, self.agents.settings, prompt, batch_id, sample)
            try:
                answer = await self._run_program(episode)
            finally:
                await self.agents.server.close_episode(episode)
                episode.close()
        trajectory = episode.trajectory(answer)
        if trajectory is None:
            self.agents.counts["no_request"] += 1
            raise AgentProgramError(f"the agent program ended without a turn of the model, on problem {_name(episode)}")
        return trajectory

    async def _run_program(self, episode: AgentEpisode) -> str:
        """Run the program; return its answer, or the model's last message if it returns none."""
        agents, limits = self.agents, self.agents.settings.limits
        url = agents.server.open_episode(episode)
        program: asyncio.Future[Any] = asyncio.ensure_future(agents.agent.run(episode.prompt.problem, url))
        timeout: asyncio.Future[Any] = asyncio.ensure_future(_wait_for_timeout(episode, limits.timeout_seconds))
        ends: set[asyncio.Future[Any]] = {program, timeout, episode.host_failure}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if episode.host_failure.done():
                episode.host_failure.result()
            if not program.done():
                agents.counts["timed_out"] += 1
                return self._failed(episode, f"took more than {limits.timeout_seconds:g} s (timeout_seconds)")
            error = None if program.cancelled() else program.exception()
            if error is not None and not isinstance(error, AgentProgramError | ComponentError):
                raise error
            if program.cancelled() or error is not None:
                agents.counts["crashed"] += 1
                failure = "was cancelled" if error is None else f"failed: {error}"
                return self._failed(episode, failure, error)
            answer = program.result()
        finally:
            for task in (program, timeout):
                task.cancel()
            await asyncio.gather(program, timeout, return_exceptions=True)
        return (episode.last_message or "") if answer is None else answer

    def _failed(self, episode: AgentEpisode, failure: str, error: BaseException | None = None) -> str:
        if self.agents.settings.limits.on_failure == "grade_empty":
            return ""
        raise AgentProgramError(f"problem {_name(episode)}: the agent program {failure}") from error


async def open_agent_player(
    stack: AsyncExitStack,
    player: EpisodePlayer,
    agent: Agent,
    config: ModelRunConfig,
    tokenizer: "PreTrainedTokenizerFast",
) -> AgentPlayer:
    """Start a server for the agent's programs, which stops with the stack; return a player of the agent.

    Raises:
        ConfigError: This process may not open enough files for that many programs.
        DataError: The model's tokenizer has no chat template.
        EngineError: No port is available.
    """
    choice = config.rollout.agent
    assert choice is not None
    limits = choice.common_options
    assert isinstance(limits, AgentLimits)
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "the model's tokenizer has no chat template, which renders an agent program's messages: copy the "
            "chat_template.jinja of its family next to the tokenizer"
        )
    window = config.longest_prompt + config.longest_response
    server = AgentServer(max(_MIN_BODY_BYTES, _BYTES_PER_TOKEN * window), connection_limit(limits.max_concurrent))
    stack.push_async_callback(server.close)
    await server.start()
    renderer = PromptRenderer(tokenizer, player.encoder, _template_variables(config))
    return AgentPlayer.from_player(
        player, AgentResources(agent, AgentSettings(limits, renderer, config.longest_prompt), server)
    )


def connection_limit(programs: int) -> int:
    """Maximum number of open connections with this number of concurrent programs. Raises the limit of open files.

    Raises:
        ConfigError: This process may not open enough files.
    """
    soft, hard = (
        limit if limit != resource.RLIM_INFINITY else 1 << 30 for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    needed = _FILES_OF_RUN + (_FILES_PER_PROGRAM + 2 * _CONNECTIONS_PER_PROGRAM) * programs
    if needed > hard:
        raise ConfigError(
            f"rollout.agent.max_concurrent = {programs} needs {needed} open files, and this process may have {hard}: "
            "raise the limit (ulimit -Hn), or set max_concurrent lower"
        )
    if needed > soft:
        soft = needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return (soft - _FILES_OF_RUN - _FILES_PER_PROGRAM * programs) // 2


async def _wait_for_timeout(episode: AgentEpisode, seconds: float) -> None:
    """Wait until the program has used this time, excluding the time it waits for the model."""
    while True:
        remaining = seconds - episode.program_seconds
        if remaining <= 0:
            return
        await asyncio.sleep(remaining)


def _template_variables(config: ModelRunConfig) -> Mapping[str, Any]:
    """The variables that the run's template passes to the model's chat template, for any problem."""
    conversation = config.data.template.bind()(Problem("", "", ""))
    return conversation.variables if isinstance(conversation, Conversation) else {}


def _name(episode: AgentEpisode) -> str:
    return f"{episode.id.problem!r}, sample {episode.id.sample}"
