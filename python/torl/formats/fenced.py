"""Base of the formats whose calls are fenced ```python blocks."""

from collections.abc import Sequence
from typing import Literal

from torl._core import StopCondition
from torl.formats.base import Format
from torl.types import MalformedCall, ToolRequest, Turn

PYTHON = "python"
"""Name of the tool that runs the blocks."""
OUTPUT_FENCE = "```output"
NO_CODE = MalformedCall("NoCode", "there was no complete ```python block to run")
"""The call of a turn that asks for output and has closed no block."""

FenceStyle = Literal["lines", "published"]


def run_block(code: str) -> ToolRequest:
    """Return the request to run a block of code."""
    return ToolRequest(PYTHON, {"code": code})


class FencedFormat(Format):
    """Base of formats that run the last closed ```python block of a turn at the marker "```output".

    A marker in a turn without a closed block is answered with an error and counts as a call, so that a row of markers
    ends. A subclass renders the observation.
    """

    tools = (PYTHON,)
    fences: FenceStyle = "lines"
    """Fences that open a block: alone on a line ("lines"), or also at the end of a line, as in the published code."""

    def stop_condition(self) -> StopCondition:
        fences = "line_ends" if self.fences == "published" else "lines"
        return StopCondition.marker(OUTPUT_FENCE.encode(), fences=fences)

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        return [self.speculative_call(turn.blocks[-1].code) if turn.blocks else NO_CODE]

    def speculative_call(self, code: str) -> ToolRequest:
        return run_block(code)
