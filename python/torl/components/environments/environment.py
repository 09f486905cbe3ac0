"""The base classes of environments."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.base.component import Component
from torl.base.guard import Guarded, InvalidResultError, describe, guarded
from torl.base.types import Outcome, Problem, ToolRequest
from torl.components.text.templates import Messages
from torl.components.tools.tool import check_outcome


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool of an environment, as described to the model."""

    description: str
    """Description of the tool."""
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of the model, as an environment receives it.

    Attributes:
        text: Whole text of the turn, with thinking and calls; without the token that ended it.
        content: Text without thinking and calls.
        calls: Calls of the environment's own tools, in order.
    """

    text: str
    content: str
    calls: Sequence[ToolRequest] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of an environment to a message. If it has neither outcomes nor user messages, the episode ends.

    Attributes:
        outcomes: Outcomes of the message's calls, one for each.
        user_messages: User messages, appended after the outcomes.
        done: Whether the episode ends.
    """

    outcomes: Sequence[Outcome] = ()
    user_messages: Sequence[str] = ()
    done: bool = False


def _check_messages(messages: object, *_: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InvalidResultError(f"expected a list of at least one message, got {describe(messages)}")
    for message in messages:
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise InvalidResultError(f"expected messages with the texts `role` and `content`, got {describe(message)}")


def _check_reply(reply: object, message: Message) -> None:
    if not isinstance(reply, Reply):
        raise InvalidResultError(f"expected Reply, got {describe(reply)}")
    if isinstance(reply.user_messages, str) or not all(isinstance(text, str) for text in reply.user_messages):
        raise InvalidResultError(f"expected a list of str as user_messages, got {describe(reply.user_messages)}")
    if len(reply.outcomes) != len(message.calls):
        raise InvalidResultError(
            f"expected {len(message.calls)} outcomes, one for each call; got {len(reply.outcomes)}"
        )
    for outcome in reply.outcomes:
        check_outcome(outcome)


def _check_rewards(rewards: object, last_message: Message | None) -> None:
    if not isinstance(rewards, Mapping):
        raise InvalidResultError(f"expected a mapping of names to numbers, got {describe(rewards)}")
    for name, value in rewards.items():
        if not _is_finite(value):
            raise InvalidResultError(f"the reward {name!r} is not a finite number: {describe(value)}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _check_session(session: object, *_: object, **__: object) -> None:
    if not isinstance(session, EnvironmentSession):
        raise InvalidResultError(f"expected EnvironmentSession, got {describe(session)}")


class EnvironmentSession(Guarded, ABC, kind="environment"):
    """An environment within one episode. Its methods are called one after the other, each with a time limit.

    An exception fails the episode, which is then left out of its group and counted. Only `reset` is retried, each time
    in a new session.
    """

    @guarded(_check_messages, fails_episode=True)
    async def reset(self, messages: Messages) -> Messages:
        """Start the episode and return its first messages.

        Args:
            messages: Messages of the problem in the run's template.
        """
        return messages

    @guarded(_check_reply, fails_episode=True)
    @abstractmethod
    async def step(self, message: Message) -> Reply:
        """Reply to a message that calls a tool of the environment, or that has no calls at all.

        The environment does not receive messages whose calls are all malformed or of other tools.
        """

    @guarded(_check_rewards, fails_episode=True)
    @abstractmethod
    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """Return the rewards of the episode, by part. Called once, after the last step.

        Args:
            last_message: Last message of the model if `step` has not received it, because the episode reached a limit
                or a stop string. Missing parts among the environment's `reward_parts` count as 0.
        """

    @guarded(fails_episode=True)
    async def close(self) -> None:
        """Release the resources of the episode. Also called if `reset` failed. Exceptions are counted and ignored."""
        return


class Environment(Component, kind="environment"):
    '''The other side of a conversation: it replies to messages, executes its own tools and rewards episodes. Example:

        from collections.abc import Mapping
        from random import Random

        import torl
        from torl import EnvironmentSession, Message, Reply

        class Guess(torl.Environment):
            """The model guesses a number."""

            def __init__(self, largest: int = 9) -> None:
                self.largest = largest

            def session(self, problem: torl.Problem, seed: int) -> "Guessing":
                return Guessing(Random(seed).randint(1, self.largest))

        class Guessing(EnvironmentSession):
            def __init__(self, number: int) -> None:
                self.number, self.correct = number, False

            async def step(self, message: Message) -> Reply:
                self.correct = message.content.strip() == str(self.number)
                return Reply(done=True) if self.correct else Reply(user_messages=["No. Guess again."])

            async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
                return {"correct": float(self.correct)}

        [rollout.environment]
        name = "my_package.environments:Guess"
        largest = 99

    The parameters of `__init__` are the options.
    '''

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """Tools by name, which `EnvironmentSession.step` executes. Also available before `start`."""
        return {}

    @property
    def reward_parts(self) -> Collection[str]:
        """Names of all reward parts, for an environment that returns some parts only sometimes.

        If empty, every episode must return each part that the configuration weights.
        """
        return ()

    @guarded(_check_session, fails_episode=True)
    @abstractmethod
    def session(self, problem: Problem, seed: int) -> EnvironmentSession:
        """Open a session for one episode. Episodes of one problem that are compared have equal seeds."""
