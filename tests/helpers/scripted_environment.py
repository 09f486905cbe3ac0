"""An environment that replies by a script, for laws about the processing of its replies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chat_models import ChatModel
from torl.base.options import Choice, Section
from torl.base.types import Outcome, OutcomeStatus, Problem
from torl.components.environments import (
    BoundedEnvironment,
    Environment,
    EnvironmentLimits,
    EnvironmentSession,
    Message,
    Reply,
    ToolSchema,
)
from torl.components.text.prompt_encoder import PromptEncoder
from torl.components.text.templates import Messages, chat
from torl.rollout.environment import RunEnvironment
from torl.rollout.episode import EpisodePlayer

LOOK = ToolSchema("Look at something.", {"type": "object", "properties": {"code": {"type": "string"}}})
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class ScriptedEnvironment(Environment):
    """`script(n)` returns the reply to the n-th message it is shown, and whether that ends the episode."""

    script: Callable[[int], tuple[Sequence[str], bool]] = lambda _: ((), False)
    opening: str | None = None  # a message of the user instead of the problem's
    rewarded: Mapping[str, float] = field(default_factory=lambda: {"score": 1.0})
    named_parts: Sequence[str] = ()
    fail_in: str = ""  # the method that raises
    failures: int = 1_000_000  # how often
    failure: BaseException = field(default_factory=lambda: ValueError("the environment's own mistake"))
    shown: list[Message] = field(default_factory=list)
    begun: list[tuple[str, int]] = field(default_factory=list)
    unanswered: list[Message | None] = field(default_factory=list)
    closed: int = 0
    open: int = 0
    most_open: int = 0

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """One."""
        return {"look": LOOK}

    @property
    def reward_parts(self) -> Sequence[str]:
        """The part names of the script."""
        return self.named_parts

    def session(self, problem: Problem, seed: int) -> "ScriptedSession":
        """Counted."""
        self.begun.append((problem.id, seed))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return ScriptedSession(self)

    def raise_in(self, method: str) -> None:
        """Raise the failure in its method."""
        if self.fail_in == method and self.failures > 0:
            self.failures -= 1
            raise self.failure


@dataclass
class ScriptedSession(EnvironmentSession):
    of: ScriptedEnvironment
    answered: int = 0

    async def reset(self, messages: Messages) -> Messages:
        self.of.raise_in("reset")
        return messages if self.of.opening is None else [*messages[:-1], {"role": "user", "content": self.of.opening}]

    async def step(self, message: Message) -> Reply:
        self.of.raise_in("step")
        self.of.shown.append(message)
        text, ended = self.of.script(self.answered)
        self.answered += 1
        outcomes = [Outcome(OutcomeStatus.OK, f"{call.arguments['code']}!\n") for call in message.calls]
        return Reply(outcomes, text, ended)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        self.of.raise_in("rewards")
        self.of.unanswered.append(last_message)
        return self.of.rewarded

    async def close(self) -> None:
        self.of.closed += 1
        self.of.open -= 1
        self.of.raise_in("close")


class Chosen(ScriptedEnvironment):
    """The class that a configuration names."""

    def __init__(self) -> None:
        """Say nothing."""
        super().__init__()


def in_environment(
    playing: EpisodePlayer,
    model: ChatModel,
    environment: Environment,
    *,
    max_prompt_tokens: int = 1000,
    max_turns: int | None = None,
    **bounds: Any,
) -> EpisodePlayer:
    """The player, in an environment with these bounds; a model of ChatML renders what it begins with."""
    limits = EnvironmentLimits(**bounds)
    model.tokenizer.chat_template = CHATML
    run_environment = RunEnvironment(
        BoundedEnvironment(environment, limits),
        model.form,
        PromptEncoder(model.tokenizer),
        chat,
        (),
        max_prompt_tokens,
    )
    choice: Choice[Environment] = Choice("scripted", type(environment), Section(), common_options=limits)
    settings = playing.settings.model_copy(update={"environment": choice, "max_turns": max_turns})
    return replace(playing, environment=run_environment, settings=settings)
