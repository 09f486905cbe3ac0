"""ZeroTIR's format: a block runs when its fence closes."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.formats.base import Format, strip_overshoot
from torl.formats.fenced import NO_CODE, FenceChoice, run_block
from torl.formats.observation import ErrorStyle, render_outcome
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Outcome, ToolRequest, Turn

TOO_LONG = "The output of the code execution is too long, please check your code."
"""What ZeroTIR shows instead of a long result."""


class ZeroTIROptions(Section):
    """Options of the format "zerotir"."""

    error_style: ErrorStyle = "traceback"
    """What the model sees of an error: its last line, what was printed before it (the last line if nothing was), the
    traceback, the traceback without names of files and carets, the last line in <error> tags, or nothing."""
    fences: FenceChoice = "lines"
    """Which fences count: those on "lines" of their own, or as in ZeroTIR's code ("published") wherever they stand; the
    code between is stripped."""
    max_observation_tokens: PositiveInt = 256
    """An observation of more tokens, fences included, becomes a sentence that says so."""


class ZeroTIRFormat(Format):
    r"""ZeroTIR (section 3.2): a block runs when its fence closes, "\n```output\n{result}\n```\n\n\n" goes in.

    There is no marker: an output block that the model opens itself is text.
    """

    name: ClassVar[str] = "zerotir"

    def __init__(self, options: ZeroTIROptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ZeroTIROptions()
        self._published = self.options.fences == "published"

    def stop_condition(self) -> StopCondition:
        """The fence that closes a block."""
        return StopCondition.block(fences="anywhere" if self._published else "lines")

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """The block that ended the turn."""
        return [self.speculative_call(turn.blocks[-1].code) if turn.blocks else NO_CODE]

    def speculative_call(self, code: str) -> ToolRequest:
        """The block whose end is the end of the turn begins before the turn has reached the controller."""
        return run_block(code.strip() if self._published else code)

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> str:
        """The newline that the closing fence's token may hold already is not repeated."""
        text = _framed(render_outcome(outcomes[0], self.options.error_style, max_characters=None))
        if not fits_tokens(text, self.options.max_observation_tokens):
            text = _framed(TOO_LONG)
        return strip_overshoot(overshoot, text)


def _framed(result: str) -> str:
    return f"\n```output\n{result}\n```\n\n\n"
