"""A control experiment: a tool that cuts the link between a model's call and what it sees of it."""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any, Self

from torl.tools.base import BaseTool, ToolSession
from torl.tools.wrapped import WrappedTool
from torl.types import Outcome

_REMEMBERED = 256


class ShuffledTool(WrappedTool):
    """Makes every call, and answers with the outcome of an earlier call for another problem.

    A model that learned to use its tool with this would have learned from something else than the tool's answers.
    The very first call, before there is another problem's, is answered with its own outcome.
    """

    def __init__(self, tool: BaseTool, seed: int) -> None:
        """`seed` chooses among the last outcomes."""
        super().__init__(tool)
        self._random = Random(seed)
        self._outcomes: deque[tuple[int, Outcome]] = deque(maxlen=_REMEMBERED)

    def session(self, seed: int) -> ToolSession:
        """All episodes of one problem have one seed, which tells problems apart here."""
        return _ShuffledSession(self, self.tool.session(seed), seed)

    def exchange(self, outcome: Outcome, seed: int) -> Outcome:
        """Another problem's outcome for this one, which is remembered."""
        others = [other for other_seed, other in self._outcomes if other_seed != seed]
        self._outcomes.append((seed, outcome))
        return self._random.choice(others) if others else outcome


class _ShuffledSession(ToolSession):
    def __init__(self, shuffled: ShuffledTool, session: ToolSession, seed: int) -> None:
        self._shuffled = shuffled
        self._session = session
        self._seed = seed

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return self._shuffled.exchange(await self._session.call(arguments), self._seed)

    def fork(self) -> Self:
        return type(self)(self._shuffled, self._session.fork(), self._seed)
