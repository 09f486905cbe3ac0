"""ToRA's format: the last block runs at "```output"; what is shown differs from ToRL's, which came from it."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl.formats.base import strip_overshoot
from torl.formats.observation import render_outcome, truncate_middle
from torl.formats.torl import ToRLFormat, ToRLOptions
from torl.types import Outcome, OutcomeStatus, Turn

MAX_CHARACTERS = 400
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
        super().__init__(ToRLOptions(max_observation_characters=MAX_CHARACTERS))

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> str:
        r"""What the model has sampled of the answer already ("```output\n") is not repeated."""
        outcome = outcomes[0]
        result = render_outcome(outcome, max_characters=None).strip()
        if outcome.ok and not outcome.text.strip():
            result = NOTHING_PRINTED
        elif outcome.status is OutcomeStatus.TIMEOUT:
            result = OUT_OF_TIME
        return strip_overshoot(overshoot, f"\n{truncate_middle(result, MAX_CHARACTERS)}\n```\n")
