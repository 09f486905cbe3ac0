"""The interpreter as one episode sees it: what a block finds of the blocks before it, and runs that start early."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from torl.errors import ConfigError
from torl.sandbox import Interpreter, InterpreterSession, StatefulInterpreter
from torl.types import InterpreterState, Outcome


@dataclass(slots=True)
class ToolCounters:
    """What became of the runs that started early, over all episodes."""

    speculated: int = 0
    wasted: int = 0  # of those: never asked for


@dataclass(frozen=True, slots=True)
class _Early:
    code: str
    task: asyncio.Task[Outcome]
    keep: Callable[[], None]


class Tool:
    """Runs the blocks of one episode, each from the state that the episode's `InterpreterState` says.

    A run that started early works on a state of its own, which becomes the episode's only if its outcome is asked for.
    """

    def __init__(
        self, interpreter: Interpreter, state: InterpreterState, *, seed: int, counters: ToolCounters | None = None
    ) -> None:
        """Raises `ConfigError` if the interpreter cannot keep state between runs, and has to."""
        if state != "fresh" and not isinstance(interpreter, StatefulInterpreter):
            raise ConfigError(
                f"rollout.interpreter_state is {state!r}, and {type(interpreter).__name__} keeps no state"
            )
        self._interpreter = interpreter
        self._state = state
        self._seed = seed
        self._counters = counters or ToolCounters()
        self._session: InterpreterSession | None = None
        self._ran_well: list[str] = []
        self._early: _Early | None = None

    def start(self, code: str) -> None:
        """Begin to run `code`, which may or may not be asked for. A run that was begun before is given up."""
        if self._early is not None:
            if self._early.code == code:
                return
            self._give_up()
        self._counters.speculated += 1
        run, keep = self._prepare(code)
        self._early = _Early(code, asyncio.ensure_future(run), keep)

    async def call(self, code: str) -> Outcome:
        """The outcome of `code`, begun early or not; what it did to the state is what the next block finds.

        Raises:
            SandboxError: the host is broken.
        """
        if self._early is not None and self._early.code == code:
            early, self._early = self._early, None
            try:
                outcome = await early.task
            except asyncio.CancelledError:
                early.task.cancel()
                raise
            keep = early.keep
        else:
            self._give_up()
            run, keep = self._prepare(code)
            outcome = await run
        keep()
        if outcome.ok and self._state == "replay":
            self._ran_well.append(code)
        return outcome

    async def close(self) -> None:
        """Give up a run that nobody asked for; when this returns it has ended."""
        if (early := self._give_up()) is not None:
            await asyncio.gather(early.task, return_exceptions=True)

    def _give_up(self) -> _Early | None:
        early, self._early = self._early, None
        if early is not None:
            self._counters.wasted += 1
            early.task.cancel()
            early.task.add_done_callback(_look_at)
        return early

    def _prepare(self, code: str) -> tuple[Awaitable[Outcome], Callable[[], None]]:
        """A run of `code`, and what makes its state the episode's."""
        interpreter = self._interpreter
        if self._state == "fresh" or not isinstance(interpreter, StatefulInterpreter):
            return interpreter.run_async(code, seed=self._seed), _nothing
        if self._state == "replay":
            return self._replay(interpreter.session(seed=self._seed), code), _nothing
        session = interpreter.session(seed=self._seed) if self._session is None else self._session.fork()

        def keep() -> None:
            self._session = session

        return session.run_async(code), keep

    async def _replay(self, session: InterpreterSession, code: str) -> Outcome:
        for earlier in self._ran_well:
            await session.run_async(earlier)
        return await session.run_async(code)


def _nothing() -> None:
    pass


def _look_at(task: asyncio.Task[Outcome]) -> None:
    """A host that broke will break the next call as well; here nobody asked."""
    if not task.cancelled():
        task.exception()
