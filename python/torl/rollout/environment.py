"""The environment as one episode sees it: what it begins with, what is shown of a turn, and what comes back."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from torl.environments import BoundedEnvironment, BoundedSession, Message, Reply
from torl.errors import DataError, ToolUnavailableError
from torl.formats import ChatFormat
from torl.rollout.clean_text import clean_messages, clean_outcome, replace_surrogates
from torl.text.prompt_encoder import PromptEncoder, ToolSchemas
from torl.text.templates import Conversation, Messages, PromptTemplate, TemplateOutput
from torl.types import Markup, Prompt, ToolRequest, Turn


@dataclass(slots=True)
class EpisodeEnvironment:
    """The environment of one episode: turns become messages by the format of the run."""

    session: BoundedSession
    format: ChatFormat
    tools: frozenset[str]  # the names of the environment's own
    unseen_turn: Turn | None = field(
        default=None, init=False
    )  # the last turn, where it was not shown to the environment

    async def answer(self, turn: Turn, requests: Sequence[ToolRequest] = ()) -> "TimedReply":
        """What the environment says to a turn, and to those of its calls that are the environment's.

        Raises:
            ToolUnavailableError: it gave no answer.
        """
        self.unseen_turn = None
        reply = await self.session.answer(self._message(turn, requests))
        said, outcomes = list(map(replace_surrogates, reply.user_messages)), list(map(clean_outcome, reply.outcomes))
        return TimedReply(replace(reply, user_messages=said, outcomes=outcomes), time.perf_counter())

    async def rewards(self) -> Mapping[str, float]:
        """What the episode is worth, by part.

        Raises:
            ToolUnavailableError: the environment does not say.
        """
        return await self.session.rewards(None if self.unseen_turn is None else self._message(self.unseen_turn, ()))

    def _message(self, turn: Turn, requests: Sequence[ToolRequest]) -> Message:
        return Message(turn.text, self.format.content(turn), tuple(requests))


@dataclass(frozen=True, slots=True)
class TimedReply:
    """What an environment answered, and when it was there (`time.perf_counter`)."""

    reply: Reply
    time: float


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The environment of a run, and how what it begins an episode with becomes a prompt."""

    bounded: BoundedEnvironment
    format: ChatFormat
    prompts: PromptEncoder
    template: PromptTemplate
    tools: ToolSchemas  # all that the model is told of
    max_prompt_tokens: int

    @asynccontextmanager
    async def open(self, prompt: Prompt, seed: int) -> AsyncIterator[tuple[EpisodeEnvironment, Prompt]]:
        """The environment for the problem of `prompt`, and the prompt that it begins with.

        Raises:
            ToolUnavailableError: the environment did not begin it, or with more than a prompt may have, or with what
                the model's chat template refuses.
            DataError: the template gives no messages.
        """
        conversation = _conversation(self.template(prompt.problem))
        session, opening = await self.bounded.begin(prompt.problem, seed, conversation.messages)
        try:
            own = frozenset(self.bounded.tools)
            begun = prompt
            if opening != conversation.messages:
                begun = self._prompt(prompt, conversation, clean_messages(opening))
            yield EpisodeEnvironment(session, self.format, own), begun
        finally:
            await session.close()

    def _prompt(self, prompt: Prompt, rendered: Conversation, opening: Messages) -> Prompt:
        """The prompt of a conversation that the environment has begun, as far as it has, and the template else.

        What the template says besides the problem may hold control tokens; of all else they stay text.
        """
        problem, held, spelled = prompt.problem, list[str](), self.prompts.escaper
        again = _conversation(self.template(spelled.escape_problem(problem, held)))
        templates = list(zip(rendered.messages, again.messages, strict=True))
        messages: list[Mapping[str, str]] = []
        for message in opening:
            texts = {name: text for name, text in message.items() if name != "role"}
            changed = {**message, **spelled.escape(texts, held)}
            messages.append(next((plain for said, plain in templates if said == message), changed))
        try:
            token_ids = self.prompts.encode(problem.id, replace(rendered, messages=messages), held, self.tools)
        except DataError as error:
            raise ToolUnavailableError(f"what the environment begins with cannot be a prompt: {error}") from error
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
            "an environment begins with messages, and the template of this run gives a text: choose "
            'data.template = "chat"'
        )
    return rendered if isinstance(rendered, Conversation) else Conversation(rendered)
