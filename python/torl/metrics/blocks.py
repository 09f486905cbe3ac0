"""The code blocks a model wrote in a response: by the very scanner that episodes run on."""

from dataclasses import dataclass
from functools import cache

from torl._core import Scanner, Vocabulary

_OPENING = "```python"
_MARKER = b"```output"


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A closed code block; [start, stop) are the characters of its code in the sampled text."""

    code: str
    start: int
    stop: int


def written_blocks(sampled_text: str, tool_calls: int) -> list[WrittenBlock]:
    """Find every closed ```` ```python ```` block of a response, those that never ran included.

    The text is read as the tokens of a vocabulary of single bytes, so the definition of a block is
    `torl._core.Scanner`'s. The response is taken to begin a line, as it does behind every template that ends
    with a newline. The first `tool_calls` markers ended turns; a turn's open block ends with it.

    Args:
        sampled_text: `Trajectory.sampled_text`.
        tool_calls: how many calls the trajectory made.
    """
    if _OPENING not in sampled_text:
        return []
    text = sampled_text.encode("utf-8", errors="replace")
    blocks: list[WrittenBlock] = []
    turn_start = 0
    for turn in range(tool_calls + 1):
        # What follows a marker on its line was not scanned by the episode, so it cannot open a block here.
        scanner = Scanner(_single_bytes(), _MARKER if turn < tool_calls else None, at_line_start=turn == 0)
        scan = scanner.feed(list(text[turn_start:]))
        for block in scan.blocks:
            start, stop = (_characters(text, turn_start + offset) for offset in (block.start, block.stop))
            blocks.append(WrittenBlock(block.code, start, stop))
        if scan.marker is None:
            break
        turn_start += scan.marker.stop
    return blocks


def _characters(text: bytes, offset: int) -> int:
    return len(text[:offset].decode("utf-8"))


@cache
def _single_bytes() -> Vocabulary:
    return Vocabulary([bytes([byte]) for byte in range(256)])
