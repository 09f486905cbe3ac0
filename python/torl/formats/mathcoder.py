"""MathCoder's format: blocks between the model's own tokens; a block of code runs as soon as it is closed."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.formats.base import Format
from torl.formats.fenced import run_block
from torl.formats.observation import render_outcome
from torl.types import MalformedCall, Markup, ObservationText, Outcome, ToolRequest, Turn

CODE, CLOSED = "<|code|>", "<|endofblock|>"
NOTHING_PRINTED = "<empty_execution>"


class MathCoderFormat(Format):
    """MathCoder's (`src/inference.py`): `<|code|>` to `<|endofblock|>` runs, and `<|execution|>` says what came of it.

    A block of `<|text|>` closes likewise, and the message goes on. An error is shown with its traceback. MathCoder runs
    a notebook: `rollout.tools.python.interpreter_state = "episode"` keeps variables; the value of a last line without
    `print` is not shown here. It also rewrites what the model has written with more than six decimals; here what was
    sampled stays.
    """

    name: ClassVar[str] = "mathcoder"
    end_tokens = ("<|endofmessage|>",)
    control_tokens = (CODE, "<|execution|>", CLOSED, "<|endofmessage|>")
    visible_tokens = (CODE, CLOSED)

    def stop_condition(self) -> StopCondition:
        """The token that closes a block of code."""
        return StopCondition.tagged(CODE.encode(), CLOSED.encode(), ends_turn=True)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """The block that the turn closed."""
        return [run_block(block.code) for block in turn.blocks]

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> ObservationText:
        """One block of what was printed."""
        (outcome,) = outcomes
        text = render_outcome(outcome, "traceback", max_characters=None).strip()
        if outcome.ok and not outcome.text.strip():
            text = NOTHING_PRINTED
        return [Markup("<|execution|>"), text, Markup(CLOSED)]
