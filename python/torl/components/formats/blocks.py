"""Formats of calls in a text: fenced ```python blocks, and code between tags."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import ClassVar, Literal

from torl._core import StopCondition
from torl.base.options import PositiveInt, Section
from torl.base.types import MalformedCall, Outcome, ToolRequest, Turn
from torl.components.formats.format import Format
from torl.components.formats.observation import ErrorStyle, render_outcome, truncate_middle

PYTHON = "python"
"""Name of the tool that runs the blocks."""
OUTPUT_FENCE = "```output"
NO_CODE = MalformedCall("NoCode", "there was no complete ```python block to run")
"""The call of a turn that asks for output and has closed no block."""

FenceStyle = Literal["lines", "published"]


def run_block(code: str) -> ToolRequest:
    """Return the request to run a block of code."""
    return ToolRequest(PYTHON, {"code": code})


class _BlockFormat(Format):
    """Base of formats whose turns run their last block of code."""

    tools = MappingProxyType({PYTHON: "code"})

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        return [self.speculative_call(turn.blocks[-1].code) if turn.blocks else NO_CODE]

    def speculative_call(self, code: str) -> ToolRequest:
        return run_block(code)


class FencedFormat(_BlockFormat):
    """Base of formats that run the last closed ```python block of a turn at the marker "```output".

    A marker in a turn without a closed block is answered with an error and counts as a call, so that a row of markers
    ends. A subclass renders the observation.

    Attributes:
        fences: Fences that open a block: alone on a line ("lines"), or also at the end of a line, as in the published
            code.
    """

    result_tags = (OUTPUT_FENCE, "```")
    call_opening = "```python"
    fences: FenceStyle = "lines"

    def stop_condition(self) -> StopCondition:
        fences = "line_ends" if self.fences == "published" else "lines"
        return StopCondition.marker(OUTPUT_FENCE.encode(), fences=fences)


class TaggedOptions(Section):
    """Options of the formats whose code is between tags."""

    error_style: ErrorStyle = "traceback"
    max_observation_characters: PositiveInt | None = None
    """Limit on the characters of a result: a longer one keeps its head and tail, half of this each. Unset keeps all."""


class TaggedFormat(_BlockFormat):
    """Base of formats that run the code between `tags` and show the result between `result_tags`.

    Attributes:
        tags: Opening and closing tag of the code.
        result_tags: Opening and closing tag of the result.
    """

    tags: ClassVar[tuple[str, str]]
    result_tags: tuple[str, str]

    def __init__(self, options: TaggedOptions | None = None) -> None:
        self.options = options or TaggedOptions()
        self.call_opening = self.tags[0]

    def stop_condition(self) -> StopCondition:
        opening, closing = self.tags
        return StopCondition.tagged(opening.encode(), closing.encode(), ends_turn=True)

    def speculative_call(self, code: str) -> ToolRequest:
        return run_block(self.extract_code(code))

    def extract_code(self, text: str) -> str:
        """Return the code of the text between the tags."""
        return text.strip()

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
        result = render_outcome(outcomes[0], self.options.error_style, max_characters=None).strip()
        if self.options.max_observation_characters is not None:
            result = truncate_middle(result, self.options.max_observation_characters)
        opening, closing = self.result_tags
        return f"\n{opening}\n{result}\n{closing}\n"
