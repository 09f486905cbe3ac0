"""The limits of an environment. A failure of the environment fails its episode, and nothing else."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from torl.base.component import RunContext
from torl.base.errors import ToolUnavailableError, TorlError
from torl.base.guard import InvalidResultError, calling, describe
from torl.base.options import Choice, PositiveFloat, PositiveInt, Section
from torl.base.types import Problem
from torl.components.environments.environment import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.components.text.templates import Messages
from torl.components.tools.retry import retry
from torl.components.tools.wrappers import MAX_RESULT_CHARACTERS, TRUNCATION

Result = TypeVar("Result")
_RESET_RETRIES: Final = 3
"""Retries of a reset. Steps are never retried, because the environment may have acted."""


class EnvironmentLimits(Section):
    """Options of every environment."""

    timeout_seconds: PositiveFloat = 60.0
    """Timeout of a reset, of a step, and of the rewards, in seconds."""
    max_concurrent: PositiveInt = 256
    """Maximum number of concurrent episodes; further episodes wait to start."""


def make_environment(choice: Choice[Environment]) -> "BoundedEnvironment":
    """Make the environment of a configuration's section, within its limits."""
    assert isinstance(choice.common_options, EnvironmentLimits)
    return BoundedEnvironment(choice.make(), choice.common_options)


@dataclass(slots=True)
class _EpisodeCounts:
    episodes: int = 0  # started
    retried: int = 0  # resets
    failed: int = 0  # episodes
    cut: int = 0  # truncated messages and results
    unclosed: int = 0  # sessions whose `close` failed


class BoundedEnvironment:
    """Opens the sessions of an environment and enforces its limits: concurrent episodes, timeouts, retries."""

    def __init__(self, environment: Environment, limits: EnvironmentLimits | None = None) -> None:
        self.environment, self.limits = environment, limits or EnvironmentLimits()
        with calling("environment", environment, "tools"):
            self.tools: Mapping[str, ToolSchema] = dict(environment.tools)
            for name, tool in self.tools.items():
                if not isinstance(tool, ToolSchema):
                    raise InvalidResultError(f"expected ToolSchema for each tool, got {name!r}: {describe(tool)}")
        with calling("environment", environment, "reward_parts"):
            self.reward_parts = tuple(environment.reward_parts)
        self.counts = _EpisodeCounts()
        self.slots = asyncio.Semaphore(self.limits.max_concurrent)
        """One for each concurrent episode."""

    async def begin(self, problem: Problem, seed: int, messages: Messages) -> "tuple[BoundedSession, Messages]":
        """Return a new session and its first messages. The caller holds one of `slots` and must close the session.

        Raises:
            ToolUnavailableError: The session did not start, after all retries.
        """
        try:
            session, opening = await retry(
                lambda: self._reset(problem, seed, messages),
                retries=_RESET_RETRIES,
                failure="the episode did not start",
                counts=self.counts,
                retry_component_errors=True,
            )
        except ToolUnavailableError:
            self.counts.failed += 1
            raise
        self.counts.episodes += 1
        return session, opening

    async def _reset(self, problem: Problem, seed: int, messages: Messages) -> "tuple[BoundedSession, Messages]":
        session = self.environment.session(problem, seed)
        try:
            opening = await self.within_timeout("start", session.reset(messages))
        except BaseException:
            await self.close_session(session)
            raise
        return BoundedSession(session, self), opening

    async def within_timeout(self, action: str, result: Awaitable[Result]) -> Result:
        """Return an awaited result; raise `ToolUnavailableError` if the time limit is reached."""
        limit = self.limits.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await result
        except TimeoutError as error:
            raise ToolUnavailableError(
                f"the environment did not {action} within {limit:g} s (rollout.environment.timeout_seconds)"
            ) from error

    def truncate(self, text: str) -> str:
        """Return `text`, truncated to its limit."""
        if len(text) <= MAX_RESULT_CHARACTERS:
            return text
        self.counts.cut += 1
        return text[:MAX_RESULT_CHARACTERS] + TRUNCATION

    async def close_session(self, session: EnvironmentSession) -> None:
        """Close a session. Errors are counted and ignored."""
        try:
            await self.within_timeout("close", session.close())
        except TorlError:
            self.counts.unclosed += 1

    async def start(self, context: RunContext) -> None:
        """Start the environment."""
        await self.environment.start(context)

    async def close(self) -> None:
        """Close the environment."""
        await self.environment.close()

    async def check(self) -> None:
        """Check the environment; see `Component.check`."""
        await self.environment.check()

    def metrics(self) -> Mapping[str, float]:
        """Return the environment's own metrics, and the counts of episodes, retries, failures and truncated texts."""
        counts = self.counts
        episodes = {"episodes": counts.episodes, "retried": counts.retried, "failed": counts.failed}
        return {**episodes, "cut": counts.cut, "unclosed": counts.unclosed, **self.environment.metrics()}


class BoundedSession:
    """A session within the limits."""

    def __init__(self, session: EnvironmentSession, environment: BoundedEnvironment) -> None:
        """Wrap a session that has started."""
        self._session, self._environment = session, environment

    async def answer(self, message: Message) -> Reply:
        """Return the reply of the environment, with truncated texts.

        Raises:
            ToolUnavailableError: The reply failed.
        """
        with self._failures_counted():
            reply = await self._environment.within_timeout("answer", self._session.step(message))
        truncate = self._environment.truncate
        outcomes = [replace(outcome, text=truncate(outcome.text)) for outcome in reply.outcomes]
        return replace(reply, outcomes=outcomes, user_messages=[truncate(text) for text in reply.user_messages])

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """Return the rewards of the episode, by part; 0 for missing `reward_parts` of the environment.

        Raises:
            ToolUnavailableError: The rewards failed, or have an unknown part.
        """
        with self._failures_counted():
            rewards = await self._environment.within_timeout("return rewards", self._session.rewards(last_message))
            parts = self._environment.reward_parts
            if parts and (unknown := rewards.keys() - set(parts)):
                name = min(unknown, key=str)
                raise ToolUnavailableError(
                    f"the environment gave a reward {name!r}, and its parts are {', '.join(parts)}"
                )
        missing = dict.fromkeys(parts, 0.0)
        return missing | {name: float(value) for name, value in rewards.items()}

    async def close(self) -> None:
        """Close the session. Errors are counted and ignored."""
        await self._environment.close_session(self._session)

    @contextmanager
    def _failures_counted(self) -> Iterator[None]:
        try:
            yield
        except ToolUnavailableError:
            self._environment.counts.failed += 1
            raise
