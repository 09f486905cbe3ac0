"""What formats share whose calls are fenced ```python blocks."""

from typing import Literal

from torl.types import ToolRequest, Turn

FenceChoice = Literal["lines", "published"]

PYTHON = "python"
"""The tool that runs the blocks."""
OUTPUT_FENCE = "```output"


def run_last_block(turn: Turn) -> ToolRequest | None:
    """Run the last block that the turn closed; None if it closed none."""
    return run_block(turn.blocks[-1].code) if turn.blocks else None


def run_block(code: str) -> ToolRequest:
    """Run a block."""
    return ToolRequest(PYTHON, {"code": code})
