"""The environment of one episode: its first messages, its replies and its rewards."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torl.base.errors import DataError, ToolUnavailableError
from torl.base.runtime.processes.hangs import PendingCalls
from torl.base.types import Markup, Prompt, ToolRequest, Turn
from torl.components.environments import BoundedEnvironment, BoundedSession, Message, Reply
from torl.components.formats import ChatFormat
from torl.components.text.prompt_encoder import PromptEncoder, ToolSchemas
from torl.components.text.templates import Conversation, Messages, PromptTemplate, TemplateOutput
from torl.rollout.calls import EpisodeTools, TimedOutcome, clean_messages, clean_outcome, replace_surrogates


@dataclass(frozen=True, slots=True)
class TimedReply:
    """A reply of an environment."""

    reply: Reply
    time: float
    """Time of its arrival (`time.perf_counter`)."""


@dataclass(slots=True)
class EpisodeEnvironment:
    """The environment of one episode, which receives turns as messages of the run's format."""

    session: BoundedSession
    format: ChatFormat
    tools: frozenset[str]
    """Names of the environment's tools."""
    open_calls: PendingCalls
    _answered: Turn | None = field(default=None, init=False)

    async def answer(self, turn: Turn, requests: Sequence[ToolRequest] = ()) -> TimedReply:
        """Reply to a turn, and execute those of its calls that are the environment's.

        Raises:
            ToolUnavailableError: The environment did not reply.
        """
        self._answered = turn
        with self.open_calls.open("the environment"):
            reply = await self.session.answer(self._message(turn, requests))
        messages, outcomes = map(replace_surrogates, reply.user_messages), map(clean_outcome, reply.outcomes)
        return TimedReply(replace(reply, user_messages=list(messages), outcomes=list(outcomes)), time.perf_counter())

    async def rewards(self, last_turn: Turn) -> Mapping[str, float]:
        """The rewards of the episode by part, after its last turn.

        Raises:
            ToolUnavailableError: The environment returned no rewards.
        """
        message = None if last_turn is self._answered else self._message(last_turn, ())
        with self.open_calls.open("the environment's rewards"):
            return await self.session.rewards(message)

    def _message(self, turn: Turn, requests: Sequence[ToolRequest]) -> Message:
        return Message(turn.text, self.format.content(turn), tuple(requests))


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The environment of a run, and the conversion of its first messages to prompts."""

    bounded: BoundedEnvironment
    format: ChatFormat
    prompts: PromptEncoder
    template: PromptTemplate
    tools: ToolSchemas
    """Schemas of all tools, including the environment's."""
    max_prompt_tokens: int

    @asynccontextmanager
    async def open(
        self, prompt: Prompt, seed: int, open_calls: PendingCalls
    ) -> AsyncIterator[tuple[EpisodeEnvironment, Prompt]]:
        """Open the environment for the problem of `prompt`; yield it with the prompt of its first messages.

        Args:
            prompt: Prompt of the problem.
            seed: Seed of the environment.
            open_calls: Register of pending calls, for the detection of hangs. The wait for other episodes to end is not
                a call.

        Raises:
            ToolUnavailableError: The environment did not start an episode, or its first messages are too long or
                rejected by the model's chat template.
            DataError: The prompt template does not return messages.
        """
        conversation = _conversation(self.template(prompt.problem))
        async with self.bounded.slots:
            with open_calls.open("the environment"):
                session, opening = await self.bounded.begin(prompt.problem, seed, conversation.messages)
            try:
                if opening != conversation.messages:
                    prompt = self._prompt(prompt, conversation, clean_messages(opening))
                yield EpisodeEnvironment(session, self.format, frozenset(self.bounded.tools), open_calls), prompt
            finally:
                await session.close()

    def _prompt(self, prompt: Prompt, rendered: Conversation, opening: Messages) -> Prompt:
        """Encode the environment's first messages.

        Control tokens stay text in the problem and in the environment's messages, but not in the template's.
        """
        problem, escaped, escaper = prompt.problem, list[str](), self.prompts.escaper
        template = _conversation(self.template(escaper.escape_problem(problem, escaped)))
        templates = list(zip(rendered.messages, template.messages, strict=True))
        messages: list[Mapping[str, str]] = []
        for message in opening:
            texts = {name: text for name, text in message.items() if name != "role"}
            changed = {**message, **escaper.escape(texts, escaped)}
            messages.append(next((safe for original, safe in templates if original == message), changed))
        try:
            token_ids = self.prompts.encode(problem.id, replace(rendered, messages=messages), escaped, self.tools)
        except DataError as error:
            raise ToolUnavailableError(f"the environment's first messages cannot be a prompt: {error}") from error
        if len(token_ids) > self.max_prompt_tokens:
            raise ToolUnavailableError(
                f"the environment begins problem {problem.id} with {len(token_ids)} tokens, and "
                f"{self.max_prompt_tokens} are allowed (data.max_prompt_tokens)"
            )
        return replace(prompt, token_ids=token_ids)


def _conversation(rendered: TemplateOutput) -> Conversation:
    if isinstance(rendered, Mapping):
        raise DataError(
            "an environment begins its conversations itself, and the template of this run gives several variants of a "
            "prompt: choose another data.template"
        )
    if isinstance(rendered, str | Markup):
        raise DataError(
            "an environment requires a prompt template that returns messages, and this run's returns text: set "
            'data.template = "chat"'
        )
    return rendered if isinstance(rendered, Conversation) else Conversation(rendered)


@dataclass(frozen=True, slots=True)
class CallRouter:
    """Routes the calls of one episode to the run's tools and to the environment's."""

    tools: EpisodeTools
    environment: EpisodeEnvironment | None

    async def answer(self, turn: Turn, requests: Sequence[ToolRequest]) -> tuple[list[TimedOutcome], Reply]:
        """Execute the calls of a turn.

        The environment receives all of its calls at once, concurrently with the calls of other tools.

        Returns:
            The outcomes in the order of `requests`, and the environment's reply to its calls.

        Raises:
            ToolUnavailableError: A tool or the environment gave no outcome.
            TorlError: The host failed.
        """
        environment = self.environment
        if environment is None:
            return await self.tools.call(requests), Reply()
        environment_calls = [request for request in requests if request.tool in environment.tools]
        if not environment_calls:
            return await self.tools.call(requests), Reply()
        tool_calls = [request for request in requests if request.tool not in environment.tools]
        outcomes, timed = await _both(self.tools.call(tool_calls), environment.answer(turn, environment_calls))
        of_tools = iter(outcomes)
        of_environment = iter(TimedOutcome(outcome, timed.time) for outcome in timed.reply.outcomes)
        in_order = [next(of_environment if each.tool in environment.tools else of_tools) for each in requests]
        return in_order, timed.reply


async def _both(
    calls: Coroutine[Any, Any, list[TimedOutcome]], answer: Coroutine[Any, Any, TimedReply]
) -> tuple[list[TimedOutcome], TimedReply]:
    """Await both concurrently. If one fails, the other is cancelled."""
    tasks = asyncio.ensure_future(calls), asyncio.ensure_future(answer)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
