"""An environment within its limits: what it fails in spoils the episode that it is of, and nothing else."""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torl.component import RunContext
from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.environments.limits import EnvironmentLimits, LimitEnforcer, failure
from torl.errors import ToolUnavailableError, TorlError
from torl.options import Choice
from torl.text.templates import Messages
from torl.tools.bounded import pause_before_retry
from torl.types import Problem


def make_environment(choice: Choice[Environment]) -> "BoundedEnvironment":
    """The environment that a section of the configuration chose, within its bounds."""
    assert isinstance(choice.common_options, EnvironmentLimits)
    return BoundedEnvironment(choice.make(), choice.common_options)


class BoundedEnvironment:
    """Begins sessions of an environment: not too many at once, each for a limited time, again where it failed."""

    def __init__(self, environment: Environment, bounds: EnvironmentLimits | None = None) -> None:
        """Bound `environment`."""
        self.environment, self.bounds = environment, bounds or EnvironmentLimits()
        self.tools: Mapping[str, ToolSchema] = dict(environment.tools)
        self._parts = tuple(environment.reward_parts)
        self._limits = LimitEnforcer(self.bounds)
        self._slots = asyncio.Semaphore(self.bounds.max_concurrent)

    async def begin(self, problem: Problem, seed: int, messages: Messages) -> "tuple[BoundedSession, Messages]":
        """A session, and the messages that it begins with. Who gets it closes it.

        Raises:
            ToolUnavailableError: it did not begin, however often it was tried.
        """
        await self._slots.acquire()
        try:
            return await self._begun(problem, seed, messages)
        except BaseException:
            self._slots.release()
            raise

    async def _begun(self, problem: Problem, seed: int, messages: Messages) -> "tuple[BoundedSession, Messages]":
        limits, retries = self._limits, self.bounds.retries
        for attempt in range(retries + 1):
            try:
                begun = await self._try(problem, seed, messages)
                limits.counts.episodes += 1
                return begun
            except ToolUnavailableError as error:
                if attempt == retries:
                    limits.counts.failed += 1
                    tries = f"{attempt + 1} tries" if attempt else "one try"
                    raise ToolUnavailableError(f"no episode began in {tries}; the last: {error}") from error
            limits.counts.retried += 1
            await asyncio.sleep(pause_before_retry(self.bounds.initial_backoff_seconds, attempt))
        raise AssertionError("unreachable")

    async def _try(self, problem: Problem, seed: int, messages: Messages) -> "tuple[BoundedSession, Messages]":
        try:
            session = self.environment.session(problem, seed)
        except TorlError:
            raise
        except Exception as error:
            raise failure("make a session", error) from error
        try:
            opening = await self._limits.within("begin", session.reset(messages))
            if not opening:
                raise ToolUnavailableError(f"the environment begins with {opening!r}, and no message")
        except BaseException:
            await _end(session, self._limits)
            raise
        return BoundedSession(session, self._limits, self._slots, self._parts), opening

    async def start(self, context: RunContext) -> None:
        """Start the environment."""
        await self.environment.start(context)

    async def close(self) -> None:
        """Close it."""
        await self.environment.close()

    async def check(self) -> None:
        """Check it."""
        await self.environment.check()

    def metrics(self) -> Mapping[str, float]:
        """The counts of its limits, and the environment's own."""
        return {**self._limits.metrics(), **self.environment.metrics()}


class BoundedSession:
    """One session within the bounds."""

    def __init__(
        self, session: EnvironmentSession, limits: LimitEnforcer, slots: asyncio.Semaphore, parts: Sequence[str] = ()
    ) -> None:
        """`session` has begun, and holds one of the slots; `parts` are the names of its rewards, where it says them."""
        self._session, self._limits, self._slots, self._parts = session, limits, slots, parts

    async def answer(self, message: Message) -> Reply:
        """The environment's answer, its texts cut.

        Raises:
            ToolUnavailableError: there was none, or none to each call.
        """
        with self._failures_counted():
            reply = await self._limits.within("answer", self._session.step(message))
            if not isinstance(reply, Reply):
                raise ToolUnavailableError(f"the environment answered with {reply!r}, which is no Reply")
            if len(reply.outcomes) != len(message.calls):
                raise ToolUnavailableError(
                    f"the environment gave {len(reply.outcomes)} outcomes for {len(message.calls)} calls"
                )
        cut = self._limits.cut
        outcomes = [replace(outcome, text=cut(outcome.text)) for outcome in reply.outcomes]
        return replace(reply, outcomes=outcomes, user_messages=[cut(text) for text in reply.user_messages])

    async def rewards(self, unanswered: Message | None) -> Mapping[str, float]:
        """What the episode is worth, by part; 0 for one of the environment's parts that it does not give.

        Raises:
            ToolUnavailableError: the environment did not say, or said what is no number or none of its parts.
        """
        with self._failures_counted():
            rewards = await self._limits.within("say its rewards", self._session.rewards(unanswered))
            if not isinstance(rewards, Mapping):
                raise ToolUnavailableError(f"the environment's rewards are {rewards!r}, and no numbers by their names")
            if self._parts and (others := rewards.keys() - set(self._parts)):
                strange, known = min(others, key=str), ", ".join(self._parts)
                raise ToolUnavailableError(f"the environment gave a reward {strange!r}, and its parts are {known}")
            return dict.fromkeys(self._parts, 0.0) | {name: _number(name, value) for name, value in rewards.items()}

    async def close(self) -> None:
        """End it, whatever it says."""
        try:
            await _end(self._session, self._limits)
        finally:
            self._slots.release()

    @contextmanager
    def _failures_counted(self) -> Iterator[None]:
        try:
            yield
        except ToolUnavailableError:
            self._limits.counts.failed += 1
            raise


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ToolUnavailableError(f"the environment's reward {name!r} is no number: {value!r}")
    return number


async def _end(session: EnvironmentSession, limits: LimitEnforcer) -> None:
    try:
        await limits.within("close", session.close())
    except TorlError:
        limits.counts.unclosed += 1
