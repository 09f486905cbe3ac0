"""The code blocks a model wrote in a response: by the very scanner that episodes run on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from torl._core import Scan, Scanner, Vocabulary
from torl.types import FormatName

_OPENING = "```python"
_MARKER = b"```output"


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """A closed code block; [start, stop) are the characters of its code in the sampled text."""

    code: str
    start: int
    stop: int


def written_blocks(sampled_text: str, tool_calls: int, format: FormatName = "torl") -> list[WrittenBlock]:
    """Find every closed ```` ```python ```` block of a response, those that never ran included.

    The text is read as the tokens of a vocabulary of single bytes, so the definition of a block is
    `torl._core.Scanner`'s. The response is taken to begin a line, as it does behind a template that ends with a
    newline. In a response of format "torl" the first `tool_calls` markers ended turns, in one of format "zerotir" as
    many blocks; a turn's open block ends with it.

    Args:
        sampled_text: `Trajectory.sampled_text`.
        tool_calls: how many calls the trajectory made.
        format: `Trajectory.format`.
    """
    if _OPENING not in sampled_text:
        return []
    text = sampled_text.encode("utf-8", errors="replace")
    blocks: list[WrittenBlock] = []
    for start, _, scan in _turns(text, tool_calls, format):
        for block in scan.blocks:
            begin, end = (_characters(text, start + offset) for offset in (block.start, block.stop))
            blocks.append(WrittenBlock(block.code, begin, end))
    return blocks


def split_turns(sampled_text: str, tool_calls: int, format: FormatName = "torl") -> list[str]:
    """The text of each turn: the first `tool_calls` end with the marker or closing fence, the last with the response.

    What the last token of a turn holds beyond that begins the next turn here.

    Args: those of `written_blocks`.
    """
    text = sampled_text.encode("utf-8", errors="replace")
    return [text[start:stop].decode("utf-8", errors="replace") for start, stop, _ in _turns(text, tool_calls, format)]


def _turns(text: bytes, tool_calls: int, format: FormatName) -> Iterator[tuple[int, int, Scan]]:
    """The bytes [start, stop) of each turn, and what the scanner found there."""
    start = 0
    for turn in range(tool_calls + 1):
        ends = turn < tool_calls
        # What follows on the line where a turn ended was not scanned by the episode, so it cannot open a block here.
        scanner = Scanner(
            _single_bytes(),
            _MARKER if ends and format == "torl" else None,
            at_line_start=turn == 0,
            stop_at_block=ends and format == "zerotir",
        )
        scan = scanner.feed(list(text[start:]))
        stop = start + scan.consumed
        yield start, stop, scan
        if scan.overshoot is None:
            break
        start = stop


def _characters(text: bytes, offset: int) -> int:
    return len(text[:offset].decode("utf-8"))


@cache
def _single_bytes() -> Vocabulary:
    return Vocabulary([bytes([byte]) for byte in range(256)])
