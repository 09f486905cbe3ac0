"""What formats share whose calls are fenced ```python blocks."""

from collections.abc import Sequence
from typing import Literal

from torl.types import MalformedCall, ToolRequest, Turn

FenceChoice = Literal["lines", "published"]

PYTHON = "python"
"""The tool that runs the blocks."""
OUTPUT_FENCE = "```output"
NO_CODE = MalformedCall("NoCode", "there was no complete ```python block to run")
"""A turn that asks for output and closed no block."""


def run_last_block(turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
    """Run the last block that the turn closed."""
    return [run_block(turn.blocks[-1].code) if turn.blocks else NO_CODE]


def run_block(code: str) -> ToolRequest:
    """Run a block."""
    return ToolRequest(PYTHON, {"code": code})
