"""ToRL's format: a marker asks for the output of the last block."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.formats.base import Format, strip_overshoot
from torl.formats.fenced import OUTPUT_FENCE, FenceChoice, run_block, run_last_block
from torl.formats.observation import ErrorStyle, render_outcome
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Outcome, ToolRequest, Turn


class ToRLOptions(Section):
    """Options of the format "torl"."""

    error_style: ErrorStyle = "last_line"
    """What the model sees of an error: its last line, what was printed before it (the last line if nothing was), the
    traceback, the traceback without names of files and carets, the last line in <error> tags, or nothing."""
    fences: FenceChoice = "lines"
    """Which fences open a block: "lines" of their own, or as in ToRL's code ("published") also at the end of a line, or
    with more behind the language."""
    max_observation_characters: PositiveInt = 256
    """Longer observations keep their head and tail, half of this each, with "..." between."""


class ToRLFormat(Format):
    r"""ToRL (section 3.1): after "```output" the last closed block of the turn runs, "\n{observation}\n```\n" goes in.

    A marker in a turn without a closed block is answered with an error and counts as a call, so that an endless row of
    markers ends.
    """

    name: ClassVar[str] = "torl"

    def __init__(self, options: ToRLOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ToRLOptions()

    def stop_condition(self) -> StopCondition:
        """The marker, wherever it stands."""
        fences = "line_ends" if self.options.fences == "published" else "lines"
        return StopCondition.marker(OUTPUT_FENCE.encode(), fences=fences)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """The last block."""
        return run_last_block(turn)

    def speculative_call(self, code: str) -> ToolRequest | None:
        """Any block may turn out to be the last."""
        return run_block(code)

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> str:
        r"""What the model has sampled of the answer already ("```output\n") is not repeated."""
        text = render_outcome(outcomes[0], self.options.error_style, self.options.max_observation_characters)
        return strip_overshoot(overshoot, f"\n{text}\n```\n")
