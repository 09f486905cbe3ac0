"""Control experiments: interpreters that cut the link between a model's code and what it sees of it."""

from collections import deque
from random import Random

from torl.sandbox import Interpreter
from torl.types import Outcome

_REMEMBERED = 256


class ShuffledInterpreter:
    """Runs every snippet, and answers with the outcome of an earlier run for another problem.

    A model that learned to use its tool with this would have learned from something else than the tool's answers.
    The very first run, before there is another problem's, is answered with its own outcome.
    """

    def __init__(self, interpreter: Interpreter, seed: int) -> None:
        """`seed` chooses among the last outcomes."""
        self._interpreter = interpreter
        self._random = Random(seed)
        self._outcomes: deque[tuple[int, Outcome]] = deque(maxlen=_REMEMBERED)

    async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
        """See `Interpreter.run_async`; all runs for one problem have one seed, which tells problems apart here."""
        outcome = await self._interpreter.run_async(code, seed=seed)
        others = [other for other_seed, other in self._outcomes if other_seed != seed]
        self._outcomes.append((seed, outcome))
        return self._random.choice(others) if others else outcome
