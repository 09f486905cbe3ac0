"""ToRA's format: the last block runs at "```output"; what is shown differs from ToRL's, which came from it."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl.formats.base import without_overshoot
from torl.formats.observation import cap, observe
from torl.formats.torl import ToRLFormat, ToRLOptions
from torl.types import Outcome, OutcomeStatus, Turn

MOST_CHARACTERS = 400
"""Of an observation; longer ones keep their head and tail."""
NOTHING_PRINTED = "Done"
OUT_OF_TIME = "Timeout Error"


class ToRAFormat(ToRLFormat):
    r"""ToRA's (`inference.py` and `python_executor.py`): "\n```output\n{result}\n```\n", of at most 400 characters.

    The result is what was printed without blanks around it, "Done" if that is nothing, and the last line of an error
    alone. Its code does not sample behind its fourth result: `rollout.max_tool_calls` 3 stands for its 4.
    """

    name: ClassVar[str] = "tora"

    def __init__(self) -> None:
        """There is nothing to choose."""
        super().__init__(ToRLOptions(max_observation_characters=MOST_CHARACTERS))

    def answer(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits: Callable[[str, int], bool]
    ) -> str:
        r"""What the model has sampled of the answer already ("```output\n") is not repeated."""
        outcome = outcomes[0]
        result = observe(outcome, max_characters=None).strip()
        if outcome.ok and not outcome.text.strip():
            result = NOTHING_PRINTED
        elif outcome.status is OutcomeStatus.TIMEOUT:
            result = OUT_OF_TIME
        return without_overshoot(overshoot, f"\n{cap(result, MOST_CHARACTERS)}\n```\n")
