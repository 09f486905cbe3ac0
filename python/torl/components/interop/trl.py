"""TRL: its environment classes in torl, and torl's sandbox and grader in its `GRPOTrainer`.

`TrlEnvironment` trains on a class for `GRPOTrainer(environment_factory=...)`. `environment_factory` and `reward_func`
are arguments of `GRPOTrainer`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torl.base.errors import ConfigError, SandboxError, TorlError
from torl.base.options import load_object
from torl.base.runtime.processes.supervision import call_function, run_in_thread
from torl.base.types import Outcome, OutcomeStatus, Problem, ToolRequest
from torl.components.environments.environment import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.components.interop.verl import score
from torl.components.text.templates import Messages
from torl.components.tools.function import describe_function
from torl_sandbox.execution import render_transcript
from torl_sandbox.pool import SandboxPool
from torl_sandbox.session import Session

_NOT_TOOLS = ("reset", "get_reward")


class TrlEnvironment(Environment):
    """An environment class of TRL: `reset`, tools as methods, and `get_reward`. Instances are reused by later episodes.

    A message without calls ends the episode, as in TRL's loop. The model sees an exception of a tool method as an
    error. A `TorlError` is a failure of the host.
    """

    def __init__(self, trl: str) -> None:
        """Make the first instance.

        Args:
            trl: Location of the class, or of a function that makes an instance, as package.module:MyEnvironment.

        Raises:
            ConfigError: `trl` cannot be imported, its instances have no `reset`, or a method cannot be a tool.
        """
        try:
            self._factory = load_object(trl)
        except ValueError as error:
            raise ConfigError(f"the environment {trl!r}: {error}") from error
        first = self._factory()
        if not callable(getattr(first, "reset", None)):
            raise ConfigError(f"the environment {trl!r}: its instances have no reset")
        try:
            self._tools = {
                name: ToolSchema(*describe_function(getattr(first, name)))
                for name, _ in inspect.getmembers(type(first), predicate=inspect.isfunction)
                if not name.startswith("_") and name not in _NOT_TOOLS
            }
        except ValueError as error:
            raise ConfigError(f"the environment {trl!r}: {error}") from error
        self._free = [first]

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """Public methods except `reset` and `get_reward`, described by their type hints and docstrings."""
        return self._tools

    def session(self, problem: Problem, seed: int) -> "TrlSession":
        row = {"id": problem.id, "question": problem.question, "answer": problem.answer, **problem.metadata}
        return TrlSession(self._factory, self._free, row)


class TrlSession(EnvironmentSession):
    """One instance for one episode."""

    def __init__(self, factory: Callable[[], Any], free: list[Any], row: Mapping[str, Any]) -> None:
        """Prepare an episode. `row` and the prompt are the arguments of `reset`, and `free` are idle instances."""
        self._factory, self._free, self._row = factory, free, row
        self._instance: Any = None
        self._is_reusable = False  # whether the episode completed

    async def reset(self, messages: Messages) -> Messages:
        """Reset an instance, and append the text that it returns to the last message, as TRL does.

        A new instance is made in a thread, because its start may take time.

        Raises:
            ValueError: `reset` returned a value that is neither a text nor None.
        """
        self._instance = self._free.pop() if self._free else await run_in_thread(self._factory)
        observation = await call_function(
            self._instance.reset, **{**self._row, "prompt": [dict(each) for each in messages]}
        )
        if observation is None:
            return messages
        if not isinstance(observation, str):
            raise ValueError(f"reset must return str or None, got {type(observation).__name__}")
        *before, last = messages
        return [*before, {**last, "content": last["content"] + observation}]

    async def step(self, message: Message) -> Reply:
        return Reply([await self._outcome(call) for call in message.calls], done=not message.calls)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """Return the result of `get_reward` under the name of the class, or nothing without this method."""
        read = getattr(self._instance, "get_reward", None)
        rewards = {} if read is None else {type(self._instance).__name__: float(await call_function(read))}
        self._is_reusable = True
        return rewards

    async def close(self) -> None:
        """Release the instance for another episode if this one completed."""
        if self._is_reusable:
            self._free.append(self._instance)

    async def _outcome(self, call: ToolRequest) -> Outcome:
        try:
            result = await call_function(getattr(self._instance, call.tool), **call.arguments)
        except TorlError:
            raise
        except Exception as error:
            return Outcome(OutcomeStatus.ERROR, str({"error": str(error)}), type(error).__name__)
        return Outcome(OutcomeStatus.OK, str(result))


class PythonEnvironment:
    """The interpreter of a rollout. Its state lasts from call to call, until TRL resets it for another rollout.

    TRL uses every public method except `reset` and `get_reward` as a tool. The environment adds nothing to the reward:
    pass `reward_funcs`.
    """

    def __init__(self, pool: SandboxPool) -> None:
        """Open a session of `pool`, which the caller closes."""
        self._pool = pool
        self._session: Session = pool.session()
        self._broken: SandboxError | None = None

    def reset(self, **_: Any) -> None:
        """Discard the state of the last rollout. The columns of the example are ignored."""
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
        """Return 0, or raise the error of the rollout: TRL shows errors of tools only to the model.

        Raises:
            SandboxError: The sandbox failed in a call of this rollout.
        """
        if self._broken is not None:
            raise self._broken
        return 0.0


def environment_factory(pool: SandboxPool) -> Callable[[], PythonEnvironment]:
    """Return the `environment_factory` of `GRPOTrainer`. All rollouts share `pool`."""
    return lambda: PythonEnvironment(pool)


def reward_func(
    completions: Sequence[str | Sequence[Mapping[str, str]]], answer: Sequence[Any], **_: Any
) -> list[float]:
    """Return 1 for each completion whose last box equals its `answer`, a column of the dataset, and otherwise 0.

    Args:
        completions: Texts, or conversations, in which the assistant's messages are graded.
        answer: Reference answers, one for each completion.

    Raises:
        RewardError: The grader failed.
    """
    return [score(_text(completion), reference) for completion, reference in zip(completions, answer, strict=True)]


def _text(completion: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(completion, str):
        return completion
    return "\n".join(message["content"] for message in completion if message.get("role") == "assistant")
