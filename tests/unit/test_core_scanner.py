"""What the scanner reports, on small turns worked out by hand."""

import pytest

from torl._core import Scanner, Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)])
MARKER = b"```output"


def scan(text: str, marker: bytes | None = MARKER):
    return Scanner(BYTES, marker).feed(list(text.encode()))


def test_a_call_as_torl_writes_it() -> None:
    found = scan("Let us see.\n```python\nprint(1)\n```\n```output\n1")
    (block,) = found.blocks
    assert (block.code, block.start, block.stop, block.token_index) == ("print(1)\n", 22, 31, 33)
    assert found.marker is not None
    assert (found.marker.start, found.marker.stop, found.marker.token_index) == (35, 44, 43)
    assert not found.marker.inside_block
    assert found.consumed == 44


@pytest.mark.parametrize(
    ("text", "codes", "inside_block"),
    [
        ("```python\nx\n```output", ["x\n"], False),  # the marker's line closes a forgotten block
        ("```python\nx = '```output", [], True),  # in the middle of a line it does not
        ("```python\na\n```python\nb\n```output", ["a\n", "b\n"], False),  # an opener closes, then opens
        ("```python\n```output", [""], False),
        ("text ```output", [], False),
        ("``````output", [], False),
    ],
)
def test_markers_and_open_blocks(text: str, codes: list[str], inside_block: bool) -> None:
    found = scan(text)
    assert [block.code for block in found.blocks] == codes
    assert found.marker is not None
    assert found.marker.inside_block == inside_block
    assert found.consumed == len(text)


@pytest.mark.parametrize("line", ["```python\n", "```python   \n", "```python\t\r\n"])
def test_openers(line: str) -> None:
    assert [block.code for block in scan(f"so\n{line}x\n```").blocks] == ["x\n"]


@pytest.mark.parametrize(
    "line", ["```Python\n", "```py\n", "```python3\n", "```python x\n", " ```python\n", "````python\n"]
)
def test_no_openers(line: str) -> None:
    assert scan(f"so\n{line}x\n```").blocks == []


def test_a_marker_that_shares_its_tokens() -> None:
    vocabulary = Vocabulary([b"x\n``", b"`out", b"put\n1", b"", b"8\n"])
    found = Scanner(vocabulary, MARKER).feed([0, 1, 3, 2, 4])
    assert found.marker is not None
    assert (found.marker.start, found.marker.stop, found.marker.token_index) == (2, 11, 3)
    assert found.marker.overshoot == b"\n1"
    assert found.consumed == 4


def test_a_block_that_ends_inside_a_token() -> None:
    vocabulary = Vocabulary([b"```python\nx", b"\n```\n\nSo"])
    (block,) = Scanner(vocabulary, MARKER).feed([0, 1]).blocks
    assert (block.code, block.token_index, block.overshoot) == ("x\n", 1, b"\n\nSo")


def test_code_that_is_not_valid_utf8() -> None:
    vocabulary = Vocabulary([b"```python\n", b"'\xe5\x8c", b"\x97", b"\xff'", b"\n```"])
    whole = Scanner(vocabulary, None).feed([0, 1, 2, 3, 4]).blocks[0]
    assert whole.code == "'北\ufffd'\n"
    assert whole.stop - whole.start == len("'北".encode()) + 3


def test_a_finished_turn_must_be_reset() -> None:
    scanner = Scanner(BYTES, MARKER)
    scanner.feed(list(b"x```output"))
    assert scanner.is_finished
    with pytest.raises(ValueError, match="reset"):
        scanner.feed([0])
    scanner.reset()
    assert (scanner.position, scanner.tokens, scanner.is_finished) == (0, 0, False)
    assert scanner.feed(list(b"```output")).consumed == 9


def test_half_a_marker_and_an_open_block_end_with_the_turn() -> None:
    scanner = Scanner(BYTES, MARKER)
    scanner.feed(list(b"```python\nx\n``"))
    assert scanner.block_is_open
    scanner.reset()
    assert not scanner.block_is_open
    found = scanner.feed(list(b"`output\n```\n"))
    assert (found.blocks, found.marker) == ([], None)


def test_without_a_marker_the_text_goes_on() -> None:
    text = "```output\n```python\nx\n```\n```output"
    found = scan(text, None)
    assert (len(found.blocks), found.marker, found.consumed) == (1, None, len(text))


def test_a_long_piece_is_scanned_like_a_short_one() -> None:
    text = b"word " * 2000 + b"\n```python\nx\n```\n```output"
    found = Scanner(BYTES, MARKER).feed(list(text))
    assert [block.code for block in found.blocks] == ["x\n"]
    assert found.consumed == len(text)


def test_a_block_may_end_the_turn() -> None:
    vocabulary = Vocabulary([b"so\n```python\nx", b"\n```\n\n", b"```python\ny\n```"])
    scanner = Scanner(vocabulary, None, stop_at_block=True)
    found = scanner.feed([0, 1, 2])
    (block,) = found.blocks
    assert (block.code, block.token_index, found.overshoot, found.consumed) == ("x\n", 1, b"\n\n", 2)
    assert found.marker is None
    assert scanner.is_finished
    scanner.reset()
    assert scanner.feed([1]).overshoot is None  # a fence that closes nothing ends nothing


def test_refusals() -> None:
    with pytest.raises(ValueError, match="not at both"):
        Scanner(BYTES, MARKER, stop_at_block=True)
    with pytest.raises(ValueError, match="marker is empty"):
        Scanner(BYTES, b"")
    with pytest.raises(OverflowError):
        Scanner(BYTES, MARKER).feed([-1])
    with pytest.raises(TypeError):
        Scanner(BYTES, MARKER).feed(["x"])  # type: ignore[list-item]
