"""One episode of an agent program: each request samples a turn, at the end of a token sequence or of a new one."""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from torl._core import Scanner
from torl.agents import AgentLimits
from torl.formats import ChatFormat
from torl.formats.base import turn_stop_condition
from torl.rollout.agents.messages import continuation_parts, message_of, valid_calls
from torl.rollout.agents.prompts import PromptRenderer
from torl.rollout.agents.requests import ChatRequest, RequestError, read_message
from torl.rollout.agents.sequences import Conversations, Message, Suffix, TokenSequence
from torl.rollout.episode import EpisodePlayer
from torl.rollout.observation import LONG_OBSERVATION
from torl.rollout.sampled_turn import ends_line, find_stop_reason, spans
from torl.seeds import derive_seed
from torl.text.vocabulary import read_turn
from torl.types import (
    FinishReason,
    Outcome,
    OutcomeStatus,
    Prompt,
    SampledTurn,
    SamplingParameters,
    StopReason,
    ToolCall,
    ToolRequest,
    Trajectory,
    Turn,
    UserMessage,
)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What all episodes of a run's agent have in common."""

    limits: AgentLimits
    renderer: PromptRenderer
    window: int  # tokens of a context, the answer included


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to a request."""

    message: Mapping[str, Any]
    finish_reason: str  # in OpenAI's words
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int


class AgentEpisode:
    """The state of an episode while its program runs."""

    def __init__(
        self, player: EpisodePlayer, settings: AgentSettings, prompt: Prompt, series: int | str, sample: int
    ) -> None:
        assert isinstance(player.format, ChatFormat)
        self.player, self.settings, self.form = player, settings, player.format
        self.prompt, self.series, self.sample = prompt, series, sample
        self.name = secrets.token_urlsafe(16)
        """Its part of the address: whoever knows it asks for this episode."""
        self.number = player.counters.started
        player.counters.started += 1
        self.threads: list[TokenSequence] = []
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with what broke the host."""
        self.last_message: str | None = None
        self._conversations = Conversations()
        self._turns = 0  # asked for
        self._open = 0  # requests
        self._own_seconds, self._idle_since = 0.0, time.perf_counter()
        self._waiting = ExitStack()
        self._waiting.enter_context(player.slots.waiting())
        self.started = time.perf_counter()

    @property
    def own_seconds(self) -> float:
        """Seconds in which the program did not wait for the model."""
        return self._own_seconds + (0.0 if self._open else time.perf_counter() - self._idle_since)

    def close(self) -> None:
        """No turn comes any more."""
        self._waiting.close()
        self.player.engine.forget(self.number)
        if not self.broken.cancel():
            self.broken.exception()  # looked at

    async def complete(self, request: ChatRequest) -> Completion:
        """Sample the message that a request asks for.

        Raises:
            RequestError: it cannot be answered.
            Exception: the host is broken; `broken` says so as well.
        """
        if self._turns >= self.settings.limits.max_turns:
            raise RequestError(
                f"this episode has had the {self.settings.limits.max_turns} turns that agent.max_turns allows",
                code="too_many_turns",
            )
        number = self._turns
        self._turns += 1
        self._begin_request()
        try:
            return await self._complete(request, number)
        except RequestError:
            raise
        except Exception as error:  # also a defect of torl's: the program could mend neither
            if not self.broken.done():
                self.broken.set_exception(error)
            raise
        finally:
            self._end_request()

    def trajectory(self, answer: str) -> Trajectory | None:
        """The thread that was sampled last, with the others as its branches; None if nothing was sampled."""
        if not self.threads:
            return None
        seconds = time.perf_counter() - self.started
        made = {id(thread): self._trajectory(thread, answer, seconds) for thread in self.threads}
        main = made.pop(id(max(self.threads, key=lambda thread: thread.last)))
        return replace(main, branches=tuple(made.values()))

    async def _complete(self, request: ChatRequest, number: int) -> Completion:
        self._require_room(request)
        continued = self._conversations.continued(request)
        if continued is None:
            context, suffix = await self._rendered(request), []
        else:
            message, added = continued
            suffix = await self._encoded(message, added)
            context = message.context() + suffix
        window = self.settings.window
        room = window - len(context)
        if room < 1:
            raise self._too_long(f"{len(context)} tokens")
        # From here to the request to the engine nothing else runs: one request alone continues a message in its thread.
        grows = continued is not None and not continued[0].continued
        if grows:
            message.continued = True
        asked_at = time.perf_counter()
        try:
            turn, sampled = await self._sample(request, context, room, number)
        except BaseException:
            if grows:
                message.continued = False
            raise
        thread = message.thread if grows else TokenSequence.begin(context)
        if grows:
            self._insert(message, added, suffix, asked_at)
        else:
            self.threads.append(thread)
        return self._told(request, thread, turn, sampled, number)

    def _require_room(self, request: ChatRequest) -> None:
        """Refuse what no context can hold before it is encoded, which takes most of a second for a million characters.

        Raises:
            RequestError: it has more text than any tokens of the context.
        """
        length = sum(len(each["content"]) for each in request.messages)
        if length > self.player.encoder.max_bytes(self.settings.window):
            raise self._too_long(f"{length} characters")

    def _too_long(self, length: str) -> RequestError:
        return RequestError(
            f"the messages have {length}, and the context holds {self.settings.window} tokens with the answer "
            "(data.max_prompt_tokens and rollout.max_response_tokens together)",
            "messages",
            code="context_length_exceeded",
        )

    async def _rendered(self, request: ChatRequest) -> list[int]:
        render, given = self.settings.renderer.render, (request.messages, request.tools)
        return render(*given) if _characters(given) < LONG_OBSERVATION else await asyncio.to_thread(render, *given)

    async def _encoded(self, message: Message, added: Suffix) -> list[int]:
        """What stands between a message and the next one."""
        form, observe = self.form, self.player.encoder.encode_observation
        calls = [message.calls[number] for number in added.results]
        parts = continuation_parts(form, calls, [*added.results.values()], added.user_messages, ended=message.ended)
        ids, _ = observe(parts) if added.length < LONG_OBSERVATION else await asyncio.to_thread(observe, parts)
        return ids

    async def _sample(
        self, request: ChatRequest, context: list[int], room: int, number: int
    ) -> tuple[Turn, SampledTurn]:
        """A turn behind the context, whose place in its thread is not known yet."""
        player, settings = self.player, self.player.settings
        end = turn_stop_condition(player.format, (*settings.stop, *request.stop), calls_left=True)
        at_line_start = ends_line(player.vocabulary, context)
        name = (self.series, self.prompt.problem.id, self.sample, number)
        sampled = await player.engine.sample(
            context,
            SamplingParameters(
                max_tokens=min(room, request.max_tokens or room),
                temperature=settings.temperature,
                top_p=settings.top_p,
                seed=derive_seed(settings.seed, *name),
            ),
            "/".join(map(str, name)),
            end=end,
            at_line_start=at_line_start,
            episode=self.number,
            group=f"{self.series}/{self.prompt.problem.id}",
        )
        scan = Scanner(player.vocabulary, end, at_line_start).feed(sampled.token_ids)
        player.counters.dropped_tokens += len(sampled.token_ids) - scan.consumed
        kept = sampled.token_ids[: scan.consumed]
        turn = read_turn(player.vocabulary, kept, scan, 0, find_stop_reason(sampled, scan), sampled.cached_tokens)
        return turn, sampled

    def _insert(self, message: Message, added: Suffix, suffix: Sequence[int], asked_at: float) -> None:
        """Put what follows a message into its thread."""
        thread = message.thread
        start, stop = thread.builder.append_observation(suffix)
        text = self.player.vocabulary.decode(suffix)
        thread.user_messages += [UserMessage(said, text, start, stop) for said in added.user_messages]
        waited = asked_at - message.sent_at
        for number, content in added.results.items():
            request = message.calls[number].request
            assert isinstance(request, ToolRequest)
            outcome = Outcome(OutcomeStatus.OK, content)
            thread.tool_calls.append(ToolCall(request, outcome, text, start, stop, waited))
            waited = 0.0

    def _told(
        self, request: ChatRequest, thread: TokenSequence, turn: Turn, sampled: SampledTurn, number: int
    ) -> Completion:
        """Put a turn into its thread, and tell the program of it."""
        player = self.player
        kept = turn.stop
        start = len(thread.builder)
        for part, version in spans(sampled, kept):
            thread.builder.append_sampled(sampled.token_ids[part], sampled.logprobs[part], version)
        ended = sampled.token_ids[kept - 1] in player.end_token_ids
        calls = valid_calls(self.form.calls(turn)) if request.may_call and ended else []
        turn = replace(turn, start=start, stop=start + kept, stop_reason=StopReason.CALL if calls else turn.stop_reason)
        thread.turns.append(turn)
        thread.last = number
        ids = [f"call_{self.number}_{number}_{place}" for place in range(len(calls))]
        told = message_of(self.form, turn, calls, ids, (*player.settings.stop, *request.stop))
        self.last_message = told["content"] or ""
        message = Message(thread, turn, calls, ids, ended, time.perf_counter())
        self._conversations.add(request, read_message(told, "message"), message)
        cut = turn.stop_reason is StopReason.LENGTH
        return Completion(
            message=told,
            finish_reason="tool_calls" if calls else "length" if cut else "stop",
            prompt_tokens=len(thread.prompt) + start,
            sampled_tokens=kept,
            cached_tokens=sampled.cached_tokens,
        )

    def _trajectory(self, thread: TokenSequence, answer: str, seconds: float) -> Trajectory:
        builder, last = thread.builder, thread.turns[-1]
        return Trajectory(
            prompt=replace(self.prompt, token_ids=tuple(thread.prompt)),
            group_id=f"{self.series}/{self.prompt.problem.id}",
            sample_index=self.sample,
            token_ids_T=builder.token_ids,
            loss_mask_T=builder.loss_mask,
            rollout_logprobs_T=builder.rollout_logprobs,
            policy_versions_T=builder.policy_versions,
            turns=tuple(thread.turns),
            tool_calls=tuple(thread.tool_calls),
            finish_reason=FinishReason.LENGTH if last.stop_reason is StopReason.LENGTH else FinishReason.STOP,
            text=self.player.vocabulary.decode(builder.token_ids.tolist()),
            seconds=seconds,
            format=self.player.format.name,
            answer=answer,
            user_messages=tuple(thread.user_messages),
        )

    def _begin_request(self) -> None:
        """The episode takes its place in the engine again."""
        if self._open == 0:
            self._own_seconds = self.own_seconds
            self._waiting.close()
        self._open += 1

    def _end_request(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._idle_since = time.perf_counter()
            self._waiting.enter_context(self.player.slots.waiting())


def _characters(value: Any) -> int:
    """Of all texts in what a request says."""
    if isinstance(value, Mapping):
        value = (*value.keys(), *value.values())
    return (
        len(value) if isinstance(value, str) else sum(map(_characters, value)) if isinstance(value, tuple | list) else 0
    )
