"""What the scanner found in a turn, as facts of the turn."""

from collections.abc import Sequence

from torl._core import Scan, Vocabulary
from torl.types import Block, StopReason, Turn


def read_turn(
    vocabulary: Vocabulary, token_ids: Sequence[int], scan: Scan, start: int, ended_by: StopReason, cached_tokens: int
) -> Turn:
    """The turn of these tokens, which begin at `start` in the response; `scan` is of exactly these."""
    data = vocabulary.decode_bytes(token_ids)
    blocks = []
    for block in scan.blocks:
        # Code begins and ends with whole lines, so that a cut there is no cut within a character.
        first = len(data[: block.start].decode("utf-8", errors="replace"))
        blocks.append(Block(block.code, first, first + len(block.code)))
    return Turn(
        start=start,
        stop=start + len(token_ids),
        text=data.decode("utf-8", errors="replace"),
        stop_reason=ended_by,
        blocks=tuple(blocks),
        cached_tokens=cached_tokens,
    )
