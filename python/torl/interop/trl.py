"""TRL: its environment classes in torl, and torl's sandbox and grader in its `GRPOTrainer`.

`TrlEnvironment` trains on a class that `GRPOTrainer(environment_factory=...)` takes. `environment_factory` and
`reward_func` are arguments of `GRPOTrainer`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.errors import ConfigError, SandboxError, TorlError
from torl.interop.shared import score
from torl.options import load_object
from torl.runtime.processes.supervision import run_in_thread
from torl.sandbox.execution import render_transcript
from torl.sandbox.pool import SandboxPool
from torl.sandbox.session import Session
from torl.text.templates import Messages
from torl.tools.function import describe_function
from torl.types import Outcome, OutcomeStatus, Problem, ToolRequest

_NOT_TOOLS = ("reset", "get_reward")


class TrlEnvironment(Environment):
    """Instances of a class, one for each episode and used again for another: `reset`, methods as tools, `get_reward`.

    A message that calls nothing ends the episode, as in TRL's loop. What a method raises is the model's to see; a
    `TorlError` is the host's.
    """

    def __init__(self, trl: str) -> None:
        """Make the first instance.

        Args:
            trl: Where the class, or a function that makes an instance, is found: package.module:MyEnvironment.

        Raises:
            ConfigError: it is not there, its instances have no `reset`, or a method cannot be a tool.
        """
        try:
            self._factory = load_object(trl)
        except ValueError as error:
            raise ConfigError(f"the environment {trl!r}: {error}") from error
        first = self._factory()
        if not callable(getattr(first, "reset", None)):
            raise ConfigError(f"the environment {trl!r}: its instances have no reset")
        try:
            self._tools = {name: ToolSchema(*describe_function(getattr(first, name))) for name in _methods(first)}
        except ValueError as error:
            raise ConfigError(f"the environment {trl!r}: {error}") from error
        self._free = [first]

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """Its public methods but `reset` and `get_reward`, by their type hints and docstrings."""
        return self._tools

    def session(self, problem: Problem, seed: int) -> "TrlSession":
        """An instance that no other episode has."""
        row = {"id": problem.id, "question": problem.question, "answer": problem.answer, **problem.metadata}
        return TrlSession(self._factory, self._free, row)


class TrlSession(EnvironmentSession):
    """One instance for one episode."""

    def __init__(self, factory: Callable[[], Any], free: list[Any], row: Mapping[str, Any]) -> None:
        """Reset nothing yet; `row` and the prompt are what `reset` is given, of an instance that is `free`."""
        self._factory, self._free, self._row = factory, free, row
        self._instance: Any = None
        self._whole = False  # whether nothing of the episode has failed or goes on

    async def reset(self, messages: Messages) -> Messages:
        """Reset an instance; what it returns stands at the end of the last message, as TRL puts it there.

        One that has to be made is made in a thread: it may start what it needs, and others play meanwhile.

        Raises:
            ValueError: it returned something else than a text or nothing.
        """
        self._instance = self._free.pop() if self._free else await run_in_thread(self._factory)
        observation = await _called(self._instance.reset, {**self._row, "prompt": [dict(each) for each in messages]})
        if observation is None:
            return messages
        if not isinstance(observation, str):
            raise ValueError(f"reset returned a {type(observation).__name__}, and only a text can be shown")
        *before, last = messages
        return [*before, {**last, "content": last["content"] + observation}]

    async def step(self, message: Message) -> Reply:
        """The results of its methods, one after the other."""
        return Reply([await self._outcome(call) for call in message.calls], done=not message.calls)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """What `get_reward` returns, by the name of the class; nothing where there is no such method."""
        read = getattr(self._instance, "get_reward", None)
        rewards = {} if read is None else {type(self._instance).__name__: float(await _called(read, {}))}
        self._whole = True
        return rewards

    async def close(self) -> None:
        """Another episode may have the instance, if this one has come to its end."""
        if self._whole:
            self._free.append(self._instance)

    async def _outcome(self, call: ToolRequest) -> Outcome:
        try:
            result = await _called(getattr(self._instance, call.tool), call.arguments)
        except TorlError:
            raise
        except Exception as error:
            return Outcome(OutcomeStatus.ERROR, str({"error": str(error)}), type(error).__name__)
        return Outcome(OutcomeStatus.OK, str(result))


class PythonEnvironment:
    """One rollout's interpreter: what a call leaves, the next one finds, until TRL resets it for another rollout.

    TRL takes every public method but `reset` and `get_reward` for a tool, so there is one. It adds nothing to the
    reward: pass `reward_funcs`.
    """

    def __init__(self, pool: SandboxPool) -> None:
        """`pool` belongs to the caller."""
        self._pool = pool
        self._session: Session = pool.session()
        self._broken: SandboxError | None = None

    def reset(self, **_: Any) -> None:
        """Forget what the last rollout left. The columns of the example are not looked at."""
        self._session = self._pool.session()

    async def python(self, code: str) -> str:
        """
        Run Python code and return what it prints, the value of its last line, and its traceback if it fails. Variables
        stay until the next call. numpy, scipy, sympy and pandas are there.

        Args:
            code: The Python code.

        Returns:
            What an interactive interpreter would show.
        """
        try:
            return render_transcript(await self._session.run_async(code, value=True))
        except SandboxError as error:
            self._broken = error
            raise

    def get_reward(self) -> float:
        """Nothing; but TRL asks before it learns, and shows the model whatever a tool raises.

        Raises:
            SandboxError: the host broke under a call of this rollout.
        """
        if self._broken is not None:
            raise self._broken
        return 0.0


def environment_factory(pool: SandboxPool) -> Callable[[], PythonEnvironment]:
    """What `GRPOTrainer` takes; all rollouts share `pool`."""
    return lambda: PythonEnvironment(pool)


def reward_func(
    completions: Sequence[str | Sequence[Mapping[str, str]]], answer: Sequence[str], **_: Any
) -> list[float]:
    """1 for each completion whose last box equals its `answer`, a column of the data set; 0 for the others.

    Args:
        completions: texts, or conversations, of which the assistant's messages count.
        answer: the references, one for each completion.

    Raises:
        RewardError: the grader is broken.
    """
    return [score(_text(completion), reference) for completion, reference in zip(completions, answer, strict=True)]


def _methods(instance: Any) -> list[str]:
    members = inspect.getmembers(type(instance), predicate=inspect.isfunction)
    return [name for name, _ in members if not name.startswith("_") and name not in _NOT_TOOLS]


async def _called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The result of a coroutine function in the event loop, of any other in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await run_in_thread(function, **arguments)


def _text(completion: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(completion, str):
        return completion
    return "\n".join(message["content"] for message in completion if message.get("role") == "assistant")
