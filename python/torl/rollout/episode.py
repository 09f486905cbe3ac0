"""One episode: sampled turns and observations until it ends."""

import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from torl.base.runtime.processes.hangs import PendingCalls
from torl.base.seeds import derive_seed
from torl.base.types import FinishReason, Outcome, Prompt, StopReason, ToolRequest, Trajectory, Turn
from torl.components.environments import Reply
from torl.components.formats.format import is_void, limit_calls
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.tools import BaseTool
from torl.rollout.calls import EpisodeTools, TimedOutcome
from torl.rollout.environment import CallRouter, EpisodeEnvironment, RunEnvironment
from torl.rollout.observation import observation_tokens
from torl.rollout.slots import EpisodeSlots
from torl.rollout.transcript import (
    AnsweredCall,
    EpisodeId,
    ScannedTurn,
    Transcript,
    TurnSampler,
    ends_line,
)
from torl.run.records import metric_names as names


@dataclass(slots=True, kw_only=True)
class EpisodePlayer(TurnSampler):
    """The resources shared by all episodes of a run. A player runs any number of episodes concurrently."""

    tools: Mapping[str, BaseTool]
    encoder: PlainTextEncoder
    slots: EpisodeSlots = field(default_factory=EpisodeSlots)
    open_calls: PendingCalls = field(default_factory=PendingCalls)
    environment: RunEnvironment | None = None

    def metrics(self) -> dict[str, float]:
        """Counts of tools, environment and speculative calls since the start, by metric name."""
        calls = self.counters.calls
        metrics = names.speculation_counts(calls.speculated, calls.wasted)
        for name, tool in self.tools.items():
            metrics |= names.tool_counts(name, tool.metrics())
        if self.environment is not None:
            metrics |= names.environment_counts(self.environment.bounded.metrics())
        return metrics

    def start_episode(self, prompt: Prompt, batch_id: int | str, sample: int) -> EpisodeId:
        """Number the next episode."""
        version = self.engine.policy_version
        episode = EpisodeId(batch_id, prompt.problem.id, sample, self.counters.started, version)
        self.counters.started += 1
        return episode

    async def check(self) -> None:
        """Verify that the environment still works; an agent in `AgentPlayer`.

        Raises:
            TorlError: A component failed.
        """
        if self.environment is not None:
            await self.environment.bounded.check()

    async def play(self, prompt: Prompt, *, batch_id: int | str, sample: int) -> Trajectory:
        """Play one episode to its end: sample a turn, execute its calls, append the observation, and repeat.

        The trajectory contains the sampled tokens without re-tokenization. With an environment, its prompt consists of
        the environment's first messages.

        Args:
            prompt: The prompt of the episode.
            batch_id: Number of a training step, or name of an evaluation. Names the group "batch_id/problem", and
                determines the seeds together with `sample`.
            sample: Index of the episode in its group.

        Raises:
            ToolUnavailableError: A tool or the environment gave no outcome; only this episode fails.
            EngineError, SandboxError: The host failed. Mistakes of the model never raise.
        """
        # One seed for all samples of a problem, so that equal calls have equal outcomes.
        seed = derive_seed(self.seed, batch_id, prompt.problem.id)
        async with AsyncExitStack() as stack:
            environment: EpisodeEnvironment | None = None
            if self.environment is not None:
                with self.slots.waiting():
                    opening = self.environment.open(prompt, seed, self.open_calls)
                    environment, prompt = await stack.enter_async_context(opening)
            episode = _Episode(self, self.start_episode(prompt, batch_id, sample), prompt, seed, environment)
            try:
                return await episode.play()
            finally:
                self.engine.forget(episode.id.number)
                await episode.tools.close()


class _Episode:
    """The state of one episode."""

    def __init__(
        self,
        player: EpisodePlayer,
        id: EpisodeId,
        prompt: Prompt,
        seed: int,
        environment: EpisodeEnvironment | None,
    ) -> None:
        self.player = player
        self.settings = player.settings
        self.id = id
        self.environment = environment
        self.transcript = Transcript(prompt)
        self.at_line_start = ends_line(player.vocabulary, prompt.token_ids)
        other_tools = () if environment is None else environment.tools
        self.tools = EpisodeTools(
            player.tools,
            seed=seed,
            problem=prompt.problem,
            counters=player.counters.calls,
            open_calls=player.open_calls,
            other_tools=other_tools,
        )
        self.started = time.perf_counter()

    async def play(self) -> Trajectory:
        finish_reason = None
        while finish_reason is None:
            finish_reason = await self._take_turn()
        rewards: Mapping[str, float] = {}
        if self.environment is not None:
            with self.player.slots.waiting():
                rewards = await self.environment.rewards(self.transcript.turns[-1])
        seconds = time.perf_counter() - self.started
        return self.transcript.trajectory(self.id, self.player, finish_reason, seconds, environment_rewards=rewards)

    async def _take_turn(self) -> FinishReason | None:
        """Sample a turn and answer it. Return why the episode ends with it, or None if it continues."""
        scanned, turn = await self._sample_turn()
        has_room = self._remaining() > 0
        reply = Reply()
        if turn.stop_reason is StopReason.CALL:
            if self.settings.end_at_void_turn and is_void(self.player.format, turn):
                return FinishReason.VOID
            if has_room:
                reply = await self._answer_calls(turn, scanned.overshoot)
        else:
            if self.environment is not None and scanned.is_closed and has_room:
                reply = await self._answer_message(turn, self.environment)
            if not reply.user_messages:
                return FinishReason(turn.stop_reason.value)
        if reply.done:
            return FinishReason.ENVIRONMENT
        if self._remaining() == 0:
            return FinishReason.LENGTH
        return FinishReason.MAX_TURNS if len(self.transcript.turns) == self.settings.max_turns else None

    async def _sample_turn(self) -> tuple[ScannedTurn, Turn]:
        calls_left = self._calls_left()
        scanned = await self.player.sample(
            self.id,
            len(self.transcript.turns),
            self.transcript.builder.context(),
            max_tokens=self._remaining(),
            at_line_start=self.at_line_start,
            calls_left=calls_left > 0,
            on_block=self._speculation(calls_left) if self.settings.speculative_execution else None,
        )
        is_call = calls_left > 0 and scanned.may_call and bool(self.player.format.parse_calls(scanned.turn))
        return scanned, self.transcript.append_turn(scanned, is_call=is_call)

    def _speculation(self, calls_left: int) -> Callable[[str], None]:
        """Return a callback that starts the call of a closed block, for a turn that may make `calls_left` calls."""
        format, started = self.player.format, 0

        def start(code: str) -> None:
            nonlocal started
            request = format.speculative_call(code)
            if request is not None and started < calls_left:
                started += format.every_block_is_a_call
                self.tools.speculate(request, replaces=not format.every_block_is_a_call)

        return start

    async def _answer_message(self, turn: Turn, environment: EpisodeEnvironment) -> Reply:
        """Pass a turn without calls to the environment, and append its reply."""
        with self.player.slots.waiting():
            reply = (await environment.answer(turn)).reply
        if reply.user_messages:
            await self._observe(turn, [], b"", reply)
        return reply

    async def _answer_calls(self, turn: Turn, overshoot: bytes) -> Reply:
        """Execute the calls of a turn and append their outcomes. Invalid calls already have an outcome."""
        player, asked_at = self.player, time.perf_counter()
        calls = limit_calls(player.format.parse_calls(turn), self._calls_left())
        requests = [call for call in calls if isinstance(call, ToolRequest)]
        player.counters.calls_without_request += len(calls) - len(requests)
        timed, reply = list[TimedOutcome](), Reply()
        if requests:
            with player.slots.waiting():
                timed, reply = await CallRouter(self.tools, self.environment).answer(turn, requests)
        outcomes, waited_until = iter(timed), asked_at
        answered: list[AnsweredCall] = []
        for call in calls:
            request = call if isinstance(call, ToolRequest) else None
            outcome = TimedOutcome(call, asked_at) if isinstance(call, Outcome) else next(outcomes)
            wait_seconds = max(0.0, outcome.time - waited_until)
            waited_until += wait_seconds
            answered.append(AnsweredCall(request, outcome.outcome, wait_seconds))
        await self._observe(turn, answered, overshoot, reply)
        return reply

    async def _observe(self, turn: Turn, calls: list[AnsweredCall], overshoot: bytes, reply: Reply) -> None:
        """Append the outcomes of calls and the environment's messages, cut at the response limit."""
        outcomes = [call.outcome for call in calls]
        format, encoder, messages = self.player.format, self.player.encoder, reply.user_messages
        token_ids, text = await observation_tokens(format, encoder, turn, outcomes, overshoot, messages)
        self.transcript.append_observation(token_ids[: self._remaining()], text, calls, messages)
        self.at_line_start = text.endswith("\n")

    def _calls_left(self) -> int:
        return self.settings.max_tool_calls - len(self.transcript.tool_calls)

    def _remaining(self) -> int:
        """Number of tokens that remain for the response."""
        return self.settings.max_response_tokens - len(self.transcript)
