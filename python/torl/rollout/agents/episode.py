"""One episode of an agent program: each request samples a turn that continues a token sequence or starts a new one."""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from torl.base.types import FinishReason, MalformedCall, Outcome, OutcomeStatus, Prompt, StopReason, Trajectory
from torl.components.agents import AgentLimits
from torl.components.formats import require_chat_format
from torl.rollout.agents.conversations import Conversations, Message, Suffix, TokenSequence
from torl.rollout.agents.messages import Completion, PromptRenderer, continuation_parts, message_of, valid_calls
from torl.rollout.agents.requests import ChatRequest, RequestError, read_message
from torl.rollout.episode import EpisodePlayer
from torl.rollout.observation import LONG_OBSERVATION
from torl.rollout.transcript import AnsweredCall, ScannedTurn, ends_line

_MAX_TURNS: Final = 256
"""Limit on the turns of an episode without `rollout.max_turns`: a program may request the model in an endless loop."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of all episodes of a run's agent."""

    limits: AgentLimits
    renderer: PromptRenderer
    max_prompt_tokens: int
    """Maximum length of a prompt in tokens. With the response limit, it is the maximum length of a context."""


class AgentEpisode:
    """The state of an episode while its program runs."""

    def __init__(
        self, player: EpisodePlayer, settings: AgentSettings, prompt: Prompt, batch_id: int | str, sample: int
    ) -> None:
        """Start an episode of a problem."""
        self.player, self.settings, self.prompt = player, settings, prompt
        self.form = require_chat_format(player.format)
        self.id = player.start_episode(prompt, batch_id, sample)
        self.name = secrets.token_urlsafe(16)
        """Secret part of the episode's URL."""
        self.sequences: list[TokenSequence] = []
        self.host_failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the error of a host that failed."""
        self.last_message: str | None = None
        self._conversations = Conversations()
        self._requested_turns = 0
        self._pending = 0  # requests
        self._program_seconds, self._idle_since = 0.0, time.perf_counter()
        self._waiting = ExitStack()
        self._waiting.enter_context(player.slots.waiting())
        self.started = time.perf_counter()

    @property
    def program_seconds(self) -> float:
        """Time in which the program did not wait for the model."""
        return self._program_seconds + (0.0 if self._pending else time.perf_counter() - self._idle_since)

    def close(self) -> None:
        """End the episode. No turn follows."""
        self._waiting.close()
        self.player.engine.forget(self.id.number)
        if not self.host_failure.cancel():
            self.host_failure.exception()  # marks the exception as retrieved

    async def complete(self, request: ChatRequest) -> Completion:
        """Sample the message of a request.

        Raises:
            RequestError: The request cannot be served.
            Exception: The host failed. `host_failure` receives the error as well.
        """
        max_turns = self.player.settings.max_turns or _MAX_TURNS
        if self._requested_turns >= max_turns:
            raise RequestError(
                f"this episode has had the {max_turns} turns that rollout.max_turns allows", code="too_many_turns"
            )
        number = self._requested_turns
        self._requested_turns += 1
        self._begin_request()
        try:
            return await self._complete(request, number)
        except RequestError:
            raise
        except Exception as error:  # also a defect of torl, which no program can handle
            if not self.host_failure.done():
                self.host_failure.set_exception(error)
            raise
        finally:
            self._end_request()

    def trajectory(self, answer: str) -> Trajectory | None:
        """The token sequence that was sampled last, with the others as its branches. None if nothing was sampled."""
        if not self.sequences:
            return None
        seconds = time.perf_counter() - self.started
        main = max(self.sequences, key=lambda sequence: sequence.last_turn)
        branches = [sequence for sequence in self.sequences if sequence is not main]
        return replace(
            self._trajectory(main, answer, seconds),
            branches=tuple(self._trajectory(sequence, answer, seconds) for sequence in branches),
        )

    async def _complete(self, request: ChatRequest, number: int) -> Completion:
        self._require_room(request)
        continued = self._conversations.continued(request)
        if continued is None:
            context, suffix_ids = await self._render(request), []
        else:
            message, suffix = continued
            suffix_ids = await self._encode(message, suffix)
            context = message.context() + suffix_ids
        room = self._window - len(context)
        if room < 1:
            raise self._too_long(f"{len(context)} tokens")
        # Nothing else runs from here to the engine's request: only one request continues a message in its sequence.
        grows = continued is not None and not continued[0].continued
        if grows:
            message.continued = True
        asked_at = time.perf_counter()
        try:
            scanned = await self._sample(request, context, room, number)
        except BaseException:
            if grows:
                message.continued = False
            raise
        if grows:
            sequence = message.sequence
            self._append_suffix(message, suffix, suffix_ids, asked_at)
        else:
            sequence = TokenSequence(replace(self.prompt, token_ids=tuple(context)))
            self.sequences.append(sequence)
        return self._append_turn(request, sequence, scanned, number)

    @property
    def _window(self) -> int:
        """Maximum length of a context in tokens, including the reply."""
        return self.settings.max_prompt_tokens + self.player.settings.max_response_tokens

    def _require_room(self, request: ChatRequest) -> None:
        """Reject a request that is too long for any context before encoding it: a million characters take a second.

        Raises:
            RequestError: The request has more text than the tokens of a context can encode.
        """
        length = sum(len(each["content"]) for each in request.messages)
        if length > self.player.encoder.max_bytes(self._window):
            raise self._too_long(f"{length} characters")

    def _too_long(self, length: str) -> RequestError:
        return RequestError(
            f"the messages have {length}, and the context holds {self._window} tokens with the answer "
            "(data.max_prompt_tokens and rollout.max_response_tokens together)",
            "messages",
            code="context_length_exceeded",
        )

    async def _render(self, request: ChatRequest) -> list[int]:
        render, conversation = self.settings.renderer.render, (request.messages, request.tools)
        if _characters(conversation) < LONG_OBSERVATION:
            return render(*conversation)
        return await asyncio.to_thread(render, *conversation)

    async def _encode(self, message: Message, suffix: Suffix) -> list[int]:
        """Encode the text between a message and the next one."""
        encode = self.player.encoder.encode_observation
        calls = [message.calls[number] for number in suffix.results]
        results = list(suffix.results.values())
        parts = continuation_parts(self.form, calls, results, suffix.user_messages, ended=message.ended)
        ids, _ = encode(parts) if suffix.length < LONG_OBSERVATION else await asyncio.to_thread(encode, parts)
        return ids

    async def _sample(self, request: ChatRequest, context: list[int], room: int, number: int) -> ScannedTurn:
        return await self.player.sample(
            self.id,
            number,
            context,
            max_tokens=min(room, request.max_tokens or room),
            at_line_start=ends_line(self.player.vocabulary, context),
            stop=request.stop,
        )

    def _append_suffix(self, message: Message, suffix: Suffix, ids: Sequence[int], asked_at: float) -> None:
        """Append the messages that follow a sampled message to its sequence."""
        wait_seconds = asked_at - message.sent_at
        answered: list[AnsweredCall] = []
        for number, content in suffix.results.items():
            request = message.calls[number].request
            assert not isinstance(request, MalformedCall)  # the program received valid calls only
            answered.append(AnsweredCall(request, Outcome(OutcomeStatus.OK, content), wait_seconds))
            wait_seconds = 0.0
        text = self.player.vocabulary.decode(ids)
        message.sequence.append_observation(ids, text, answered, suffix.user_messages)

    def _append_turn(
        self, request: ChatRequest, sequence: TokenSequence, scanned: ScannedTurn, number: int
    ) -> Completion:
        """Append a turn to its sequence, and make the reply to the program."""
        ended = scanned.has_end_token
        calls = valid_calls(self.form.calls(scanned.turn)) if request.may_call and ended else []
        turn = sequence.append_turn(scanned, is_call=bool(calls))
        sequence.last_turn = number
        ids = [f"call_{self.id.number}_{number}_{place}" for place in range(len(calls))]
        reply = message_of(self.form, turn, calls, ids, (*self.player.settings.stop, *request.stop))
        self.last_message = reply["content"] or ""
        message = Message(sequence, turn, calls, ids, ended, time.perf_counter())
        self._conversations.add(request, read_message(reply, "message"), message)
        was_cut = turn.stop_reason is StopReason.LENGTH
        return Completion(
            message=reply,
            finish_reason="tool_calls" if calls else "length" if was_cut else "stop",
            prompt_tokens=len(sequence.prompt.token_ids) + turn.start,
            sampled_tokens=turn.stop - turn.start,
            cached_tokens=turn.cached_tokens,
        )

    def _trajectory(self, sequence: TokenSequence, answer: str, seconds: float) -> Trajectory:
        was_cut = sequence.turns[-1].stop_reason is StopReason.LENGTH
        finish_reason = FinishReason.LENGTH if was_cut else FinishReason.STOP
        return sequence.trajectory(self.id, self.player, finish_reason, seconds, answer=answer)

    def _begin_request(self) -> None:
        """Take a slot of the engine again."""
        if self._pending == 0:
            self._program_seconds = self.program_seconds
            self._waiting.close()
        self._pending += 1

    def _end_request(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._idle_since = time.perf_counter()
            self._waiting.enter_context(self.player.slots.waiting())


def _characters(value: Any) -> int:
    """Number of characters in all texts of a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        value = (*value.keys(), *value.values())
    return sum(map(_characters, value)) if isinstance(value, tuple | list) else 0
