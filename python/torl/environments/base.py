"""What an episode needs of an environment."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torl.text.chat_templates import Messages
from torl.types import Outcome, Problem, ToolRequest


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool of an environment, as a model is told of it; `parameters` is the JSON schema of its arguments."""

    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of the model, as an environment sees it."""

    text: str
    """All of it, thinking and calls included; without the token that ended it."""
    content: str
    """What it says besides its thinking and its calls."""
    calls: Sequence[ToolRequest] = ()
    """Those of the environment's own tools, in their order."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an environment answers. A message without calls that nothing is said about is the last."""

    outcomes: Sequence[Outcome] = ()
    """Of the message's calls, one for each."""
    user_messages: Sequence[str] = ()
    """Messages of the user, behind the outcomes."""
    done: bool = False
    """Whether the episode ends with this."""


class EnvironmentSession(Protocol):
    """An environment as one episode sees it. Its methods are called one after the other, each within a time limit.

    What one of them raises is the host's failure: the episode is spoilt, left out of its group and counted. Only
    `reset` is tried again, each time with another session.
    """

    async def reset(self, messages: Messages) -> Messages:
        """The messages that the episode begins with; `messages` are those of the problem in its template."""
        return messages

    async def step(self, message: Message) -> Reply:
        """The answer to a message that calls a tool of the environment, or calls nothing at all.

        One whose calls are all of other tools, or malformed, is not shown to the environment.
        """
        ...

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """What the episode is worth, by part. Asked once, when it has ended.

        `unanswered` is its last message where that was not answered: it ended at a limit, or with a stop string. One of
        the environment's `parts` that is missing counts as 0.
        """
        ...

    async def close(self) -> None:
        """End what the episode holds; also after a `reset` that failed. What it raises is counted and passed over."""
        return


class Environment(Protocol):
    '''What a model is trained in: it opens episodes, answers turns, and says what an episode is worth. A whole one:

        from collections.abc import Mapping
        from random import Random

        import torl
        from torl.environments import EnvironmentSession, Environment, Message, Reply

        class Guess(Environment):
            """A number is to be guessed."""

            def __init__(self, largest: int = 9) -> None:
                self.largest = largest

            def session(self, problem: torl.Problem, seed: int) -> "Guessing":
                return Guessing(Random(seed).randint(1, self.largest))

        class Guessing(EnvironmentSession):
            def __init__(self, number: int) -> None:
                self.number, self.right = number, False

            async def step(self, message: Message) -> Reply:
                self.right = message.content.strip() == str(self.number)
                return Reply(done=True) if self.right else Reply(user_messages=["No. Guess again."])

            async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
                return {"right": float(self.right)}

        [rollout.environment]
        name = "my_package.environments:Guess"
        largest = 99

    One object serves all episodes of a run. The parameters of its `__init__` are its options.
    '''

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """Its tools by name, also before the start. Their calls are answered by `EnvironmentSession.step`."""
        return {}

    @property
    def reward_parts(self) -> Collection[str]:
        """The names of all its rewards, for an environment that gives some of them only sometimes.

        Where there are none, every episode has to give each part that a configuration weighs.
        """
        return ()

    def session(self, problem: Problem, seed: int) -> EnvironmentSession:
        """The environment for one episode. Episodes of one problem that are compared have equal seeds."""
        ...

    async def start(self) -> None:
        """Start what it needs, once, before the first episode; raises a `TorlError` if it does not work."""
        return

    async def close(self) -> None:
        """End what `start` started; also after a `start` that failed."""
        return

    async def check(self) -> None:
        """Raise a `TorlError` if the environment no longer works; called after each step of a training run."""
        return

    def metrics(self) -> Mapping[str, float]:
        """Counts since the start, by name, for the records of a run."""
        return {}
