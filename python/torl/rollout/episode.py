"""One episode: a prompt is played to its end, sampled tokens and observations in one record."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace

from torl._core import Scanner, TrajectoryBuilder, Vocabulary
from torl.engine import Engine
from torl.environments import Reply
from torl.formats import Format
from torl.formats.base import is_void, limit_calls, turn_stop_condition
from torl.rollout.call_router import CallRouter
from torl.rollout.calls import CallCounters, EpisodeTools, TimedOutcome
from torl.rollout.environment import EpisodeEnvironment, RunEnvironment
from torl.rollout.observation import observation_tokens
from torl.rollout.sampled_turn import ends_line, find_stop_reason, spans
from torl.rollout.settings import EpisodeSettings
from torl.rollout.slots import EpisodeSlots
from torl.runtime.processes.watchdogs import PendingCalls
from torl.seeds import derive_seed
from torl.text.tokenizer import PlainTextEncoder
from torl.text.vocabulary import read_turn
from torl.tools import BaseTool
from torl.types import (
    FinishReason,
    Outcome,
    Prompt,
    SamplingParameters,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
    UserMessage,
)


@dataclass(slots=True)
class EpisodeCounters:
    """What happened in all episodes of a player, and is in no trajectory."""

    started: int = 0
    dropped_tokens: int = 0  # sampled after what ends a turn: thrown away
    calls_without_request: int = 0
    calls: CallCounters = field(default_factory=CallCounters)


@dataclass(slots=True)
class EpisodePlayer:
    """Everything an episode needs besides its prompt. One player plays any number of episodes at once."""

    engine: Engine
    tools: Mapping[str, BaseTool]
    vocabulary: Vocabulary
    encoder: PlainTextEncoder
    format: Format
    settings: EpisodeSettings
    slots: EpisodeSlots = field(default_factory=EpisodeSlots)
    counters: EpisodeCounters = field(default_factory=EpisodeCounters)
    open_calls: PendingCalls = field(default_factory=PendingCalls)
    end_token_ids: frozenset[int] = frozenset()  # the format's end tokens; the engine ends turns at them
    environment: RunEnvironment | None = None  # that episodes are conversations with, where there is one

    def metrics(self) -> dict[str, float]:
        """What it has counted since the start besides, under the names of metrics."""
        return {}

    async def check(self) -> None:
        """Verify that the environment still works; an agent in `AgentPlayer`.

        Raises:
            TorlError: It has failed.
        """
        if self.environment is not None:
            await self.environment.bounded.check()

    async def play(self, prompt: Prompt, *, batch_id: int | str, sample: int) -> Trajectory:
        """Play one episode to its end: sample a turn, make the call that it asks for, put in the answer, sample again.

        `series` and `sample` name the episode: its group is "series/problem", and its seeds are made from them. The
        series is the number of a training step, or the name of an evaluation. The trajectory holds what the engine
        sampled, token for token: nothing is decoded and encoded again. Where there is an environment, its prompt is
        what that begins with.

        Raises:
            ToolUnavailableError: a tool or the environment gave no outcome; the episode is spoilt, and nothing else.
            EngineError, SandboxError: the host is broken. What the model does wrong never raises.
        """
        # One seed for all samples of a problem, so that equal calls have equal outcomes.
        seed = derive_seed(self.settings.seed, batch_id, prompt.problem.id)
        async with AsyncExitStack() as stack:
            environment: EpisodeEnvironment | None = None
            if self.environment is not None:
                with self.waiting("the environment"):
                    opening = self.environment.open(prompt, seed)
                    environment, prompt = await stack.enter_async_context(opening)
            episode = _Episode(self, prompt, batch_id, sample, seed, environment)
            try:
                return await episode.play()
            finally:
                self.engine.forget(episode.number)
                await episode.tools.close()

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """While an episode waits for what is called `name`: others may be sampled in its place."""
        with self.slots.waiting(), self.open_calls.open(name):
            yield


class _Episode:
    """The state of one episode while it is played."""

    def __init__(
        self,
        player: EpisodePlayer,
        prompt: Prompt,
        batch_id: int | str,
        sample: int,
        seed: int,
        environment: EpisodeEnvironment | None,
    ) -> None:
        self.player = player
        self.environment = environment
        self.prompt = prompt
        self.batch_id = batch_id
        self.sample = sample
        self.builder = TrajectoryBuilder(prompt.token_ids)
        self.turns: list[Turn] = []
        self.tool_calls: list[ToolCall] = []
        self.user_messages: list[UserMessage] = []
        self.closed = False  # whether an end token closed the last turn, so that it can be answered
        self.at_line_start = ends_line(player.vocabulary, prompt.token_ids)
        self.number = player.counters.started
        player.counters.started += 1
        others = () if environment is None else environment.tools
        self.tools = EpisodeTools(player.tools, seed=seed, counters=player.counters.calls, others=others)
        self.started = time.perf_counter()

    async def play(self) -> Trajectory:
        finish_reason = None
        while finish_reason is None:
            finish_reason = await self._take_turn()
        rewards: Mapping[str, float] = {}
        if self.environment is not None:
            with self.player.waiting("the environment's rewards"):
                rewards = await self.environment.rewards()
        return self._trajectory(finish_reason, rewards)

    async def _take_turn(self) -> FinishReason | None:
        """Sample a turn and answer it; why the episode ends with it, or None where it goes on."""
        turn, overshoot = await self._sample_turn()
        room = self._remaining() > 0
        reply = Reply()
        if turn.stop_reason is StopReason.CALL:
            if self.player.settings.end_at_void_turn and is_void(self.player.format, turn):
                return FinishReason.VOID
            if room:
                reply = await self._answer_calls(turn, overshoot)
        else:
            if self.environment is not None and self.closed and room:
                reply = await self._answer_message(turn, self.environment)
            if not reply.user_messages:
                return FinishReason(turn.stop_reason.value)
        if reply.done:
            return FinishReason.ENVIRONMENT
        if self._remaining() == 0:
            return FinishReason.LENGTH
        return FinishReason.MAX_TURNS if len(self.turns) == self.player.settings.max_turns else None

    async def _sample_turn(self) -> tuple[Turn, bytes]:
        """One generation, and what the token that ended it holds beyond the end."""
        player, settings = self.player, self.player.settings
        calls_left = settings.max_tool_calls - len(self.tool_calls)
        end = turn_stop_condition(player.format, settings.stop, calls_left=calls_left > 0)
        name = (self.batch_id, self.prompt.problem.id, self.sample, len(self.turns))
        sampled = await player.engine.sample(
            self.builder.context(),
            SamplingParameters(
                max_tokens=self._remaining(),
                temperature=settings.temperature,
                top_p=settings.top_p,
                seed=derive_seed(settings.seed, *name),
            ),
            "/".join(map(str, name)),
            end=end,
            at_line_start=self.at_line_start,
            episode=self.number,
            group=f"{self.batch_id}/{self.prompt.problem.id}",
            on_block=self._early_calls(calls_left) if settings.speculative_execution else None,
        )
        # The engine ended the turn; where exactly, and with which blocks, the tokens say.
        scan = Scanner(player.vocabulary, end, self.at_line_start).feed(sampled.token_ids)
        start = len(self.builder)
        for part, version in spans(sampled, scan.consumed):
            self.builder.append_sampled(sampled.token_ids[part], sampled.logprobs[part], version)
        player.counters.dropped_tokens += len(sampled.token_ids) - scan.consumed
        kept = sampled.token_ids[: scan.consumed]
        turn = read_turn(player.vocabulary, kept, scan, start, find_stop_reason(sampled, scan), sampled.cached_tokens)
        self.closed = kept[-1] in player.end_token_ids and scan.stop is None
        at_end = self.closed or (scan.overshoot is not None and scan.stop is None)
        if calls_left > 0 and at_end and player.format.parse_calls(turn):
            turn = replace(turn, stop_reason=StopReason.CALL)
        self.turns.append(turn)
        if self.environment is not None:
            self.environment.unseen_turn = turn
        return turn, scan.overshoot or b""

    def _early_calls(self, calls_left: int) -> Callable[[str], None]:
        """What a block begins that closes in a turn which may make so many calls."""
        format, begun = self.player.format, 0

        def begin(code: str) -> None:
            nonlocal begun
            request = format.speculative_call(code)
            if request is not None and begun < calls_left:
                begun += format.every_block_is_a_call
                self.tools.speculate(request, replaces=not format.every_block_is_a_call)

        return begin

    async def _answer_message(self, turn: Turn, environment: EpisodeEnvironment) -> Reply:
        """Show the environment a turn without calls, and splice what it says."""
        waited_from = time.perf_counter()
        with self.player.waiting("the environment"):
            answered = await environment.answer(turn)
        if answered.reply.user_messages:
            await self._splice(turn, [], b"", answered.reply, waited_from)
        return answered.reply

    async def _answer_calls(self, turn: Turn, overshoot: bytes) -> Reply:
        """Make the calls of the turn that just ended and splice what came of them.

        Calls that cannot be made have their outcomes already.
        """
        player, begun = self.player, time.perf_counter()
        asked = player.format.parse_calls(turn)
        calls = limit_calls(asked, player.settings.max_tool_calls - len(self.tool_calls))
        requests = [call for call in calls if isinstance(call, ToolRequest)]
        player.counters.calls_without_request += len(calls) - len(requests)
        made, reply = list[TimedOutcome](), Reply()
        if requests:
            names = ", ".join(repr(name) for name in dict.fromkeys(request.tool for request in requests))
            with player.waiting(f"the tool {names}"):
                made, reply = await CallRouter(self.tools, self.environment).answer(turn, requests)
        outcomes = iter(made)
        answers = [(call, TimedOutcome(call, begun) if isinstance(call, Outcome) else next(outcomes)) for call in calls]
        await self._splice(turn, answers, overshoot, reply, begun)
        return reply

    async def _splice(
        self,
        turn: Turn,
        answers: Sequence[tuple[ToolRequest | Outcome, TimedOutcome]],
        overshoot: bytes,
        reply: Reply,
        waited_until: float,
    ) -> None:
        """Put in the outcomes of calls and what the environment said, cut at the response limit."""
        outcomes = [answer.outcome for _, answer in answers]
        observing = observation_tokens(
            self.player.format, self.player.encoder, turn, outcomes, overshoot, reply.user_messages
        )
        token_ids, observation = await observing
        first, last = self.builder.append_observation(token_ids[: self._remaining()])
        for call, answer in answers:
            request = call if isinstance(call, ToolRequest) else None
            wait_seconds = max(0.0, answer.time - waited_until)
            waited_until += wait_seconds
            self.tool_calls.append(ToolCall(request, answer.outcome, observation, first, last, wait_seconds))
        self.user_messages += [UserMessage(text, observation, first, last) for text in reply.user_messages]
        self.at_line_start = observation.endswith("\n")

    def _remaining(self) -> int:
        return self.player.settings.max_response_tokens - len(self.builder)

    def _trajectory(self, finish_reason: FinishReason, environment_rewards: Mapping[str, float]) -> Trajectory:
        builder = self.builder
        return Trajectory(
            prompt=self.prompt,
            group_id=f"{self.batch_id}/{self.prompt.problem.id}",
            sample_index=self.sample,
            token_ids_T=builder.token_ids,
            loss_mask_T=builder.loss_mask,
            rollout_logprobs_T=builder.rollout_logprobs,
            policy_versions_T=builder.policy_versions,
            turns=tuple(self.turns),
            tool_calls=tuple(self.tool_calls),
            finish_reason=finish_reason,
            text=self.player.vocabulary.decode(builder.token_ids.tolist()),
            seconds=time.perf_counter() - self.started,
            format=self.player.format.name,
            user_messages=tuple(self.user_messages),
            environment_rewards=environment_rewards,
        )
