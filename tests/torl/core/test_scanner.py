"""Reports of the scanner on small turns worked out by hand."""

import pickle

import msgspec
import pytest

from torl._core import Scanner, StopCondition, Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)])
END = StopCondition.marker(b"```output")


def scan(text: str, end: StopCondition = END):
    return Scanner(BYTES, end).feed(list(text.encode()))


def test_a_call_as_torl_writes_it() -> None:
    found = scan("Let us see.\n```python\nprint(1)\n```\n```output\n1")
    (block,) = found.blocks
    assert (block.code, block.start, block.stop) == ("print(1)\n", 22, 31)
    assert found.marker is not None
    assert (found.marker.start, found.marker.stop) == (35, 44)
    assert found.consumed == 44


@pytest.mark.parametrize(
    ("text", "codes", "leaves_a_block_open"),
    [
        ("```python\nx\n```output", ["x\n"], False),  # the marker's line closes a forgotten block
        ("```python\nx = '```output", [], True),  # in the middle of a line it does not
        ("```python\na\n```python\nb\n```output", ["a\n", "b\n"], False),  # an opener closes, then opens
        ("```python\n```output", [""], False),
        ("text ```output", [], False),
        ("``````output", [], False),
    ],
)
def test_markers_and_open_blocks(text: str, codes: list[str], leaves_a_block_open: bool) -> None:
    scanner = Scanner(BYTES, END)
    found = scanner.feed(list(text.encode()))
    assert [block.code for block in found.blocks] == codes
    assert found.marker is not None
    assert scanner.block_is_open == leaves_a_block_open
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
    found = Scanner(vocabulary, END).feed([0, 1, 3, 2, 4])
    assert found.marker is not None
    assert (found.marker.start, found.marker.stop) == (2, 11)
    assert found.marker.overshoot == b"\n1"
    assert found.consumed == 4


def test_a_block_that_ends_inside_a_token() -> None:
    vocabulary = Vocabulary([b"```python\nx", b"\n```\n\nSo"])
    (block,) = Scanner(vocabulary, END).feed([0, 1]).blocks
    assert (block.code, block.stop, block.overshoot) == ("x\n", 12, b"\n\nSo")


def test_code_that_is_not_valid_utf8() -> None:
    vocabulary = Vocabulary([b"```python\n", b"'\xe5\x8c", b"\x97", b"\xff'", b"\n```"])
    whole = Scanner(vocabulary, StopCondition.never()).feed([0, 1, 2, 3, 4]).blocks[0]
    assert whole.code == "'北\ufffd'\n"
    assert whole.stop - whole.start == len("'北".encode()) + 3


def test_a_finished_turn_reads_no_more() -> None:
    scanner = Scanner(BYTES, END)
    scanner.feed(list(b"x```output"))
    assert scanner.is_finished
    for feed in (scanner.feed, lambda ids: scanner.feed_token(ids[0])):
        with pytest.raises(ValueError, match="this turn has ended"):
            feed([0])
    assert Scanner(BYTES, END).feed(list(b"```output")).consumed == 9


def test_half_a_marker_and_an_open_block_end_with_the_turn() -> None:
    scanner = Scanner(BYTES, END)
    scanner.feed(list(b"```python\nx\n``"))
    assert scanner.block_is_open
    scanner = Scanner(BYTES, END)
    assert not scanner.block_is_open
    found = scanner.feed(list(b"`output\n```\n"))
    assert (found.blocks, found.marker) == ([], None)


def test_text_continues_without_a_marker() -> None:
    text = "```output\n```python\nx\n```\n```output"
    found = scan(text, StopCondition.never())
    assert (len(found.blocks), found.marker, found.consumed) == (1, None, len(text))


def test_a_long_piece_is_scanned_like_a_short_one() -> None:
    text = b"word " * 2000 + b"\n```python\nx\n```\n```output"
    found = Scanner(BYTES, END).feed(list(text))
    assert [block.code for block in found.blocks] == ["x\n"]
    assert found.consumed == len(text)


def test_a_block_may_end_the_turn() -> None:
    vocabulary = Vocabulary([b"so\n```python\nx", b"\n```\n\n", b"```python\ny\n```"])
    scanner = Scanner(vocabulary, StopCondition.block())
    found = scanner.feed([0, 1, 2])
    (block,) = found.blocks
    assert (block.code, block.stop, found.overshoot, found.consumed) == ("x\n", 15, b"\n\n", 2)
    assert found.marker is None
    assert scanner.is_finished
    scanner = Scanner(vocabulary, StopCondition.block())
    assert scanner.feed([1]).overshoot is None  # a fence that closes nothing ends nothing


def test_first_block_between_tags_ends_turn_on_request() -> None:
    scanner = Scanner(BYTES, StopCondition.tagged(b"<a>", b"</>", ends_turn=True))
    found = scanner.feed(list(b"<b>x</><a>y</>z<a>w</>"))
    assert ([block.code for block in found.blocks], found.consumed, found.overshoot) == (["y"], 14, b"")


def test_refusals() -> None:
    with pytest.raises(ValueError, match="marker is empty"):
        StopCondition.marker(b"")
    with pytest.raises(TypeError):
        Scanner(BYTES, b"```output")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        Scanner(BYTES, END).feed([-1])
    with pytest.raises(TypeError):
        Scanner(BYTES, END).feed(["x"])  # type: ignore[list-item]


def test_only_the_blocks_of_its_language_are_found() -> None:
    text = "```c++\nx;\n```\n```python\ny\n```\n```c\nz\n```\n"
    for language, codes in (("c++", ["x;\n"]), ("python", ["y\n"]), ("c", ["z\n"]), ("cpp", [])):
        scanner = Scanner(BYTES, StopCondition.never(), language=language)
        assert [block.code for block in scanner.feed(list(text.encode())).blocks] == codes


@pytest.mark.parametrize("language", ["", "two words", "`", "c\n", "naïve", "x" * 65])
def test_a_language_that_no_fence_could_name_is_refused(language: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 ASCII letters, digits"):
        Scanner(BYTES, END, language=language)


ENDS = [StopCondition.never(), StopCondition.block(), StopCondition.marker(b"a"), StopCondition.marker(b"\xff\n"), END]
ENDS += [StopCondition.tagged(b"<a>", b"</a>", ends_turn=True)]
ENDS += [StopCondition.tagged(b"<a>", b"</a>"), StopCondition.tagged(b"<a>", b"\xff").with_stops(["."])]


def test_ends_of_turns_are_values() -> None:
    again = [
        StopCondition.never(),
        StopCondition.block(),
        StopCondition.marker(b"a"),
        StopCondition.marker(b"\xff\n"),
        END,
    ]
    again += [StopCondition.tagged(b"<a>", b"</a>", ends_turn=True)]
    again += [StopCondition.tagged(b"<a>", b"</a>"), StopCondition.tagged(b"<a>", b"\xff").with_stops(["."])]
    assert again == ENDS
    assert len({*ENDS, *again}) == len(ENDS)
    assert StopCondition.never() != None  # noqa: E711
    assert [end.kind for end in ENDS] == ["never", "block", "marker", "marker", "marker", "block", "never", "never"]
    assert [end.marker_bytes for end in ENDS] == [None, None, b"a", b"\xff\n", b"```output", None, None, None]
    assert [end.tags for end in ENDS] == [None] * 5 + [(b"<a>", b"</a>")] * 2 + [(b"<a>", b"\xff")]
    assert ENDS[5].without_call() == ENDS[6]
    assert ENDS[-1].without_call() == ENDS[-1]
    with pytest.raises(AttributeError):
        END.kind = "never"  # type: ignore[misc]


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_an_end_of_a_turn_travels(end: StopCondition) -> None:
    assert pickle.loads(pickle.dumps(end)) == end
    assert eval(repr(end)) == end
    message = msgspec.msgpack.decode(msgspec.msgpack.encode(end.to_plain()))
    assert StopCondition.from_plain(message) == end


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"kind": "never"},
        {"kind": "never", "marker": b"x"},
        {"kind": "marker", "marker": None},
        {"kind": "marker", "marker": b""},
        {"kind": "block", "marker": b"x"},
        {"kind": "line", "marker": None},
    ],
)
def test_no_other_data_is_an_end_of_a_turn(plain: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a stop condition has no field|invalid stop condition|marker is empty"):
        StopCondition.from_plain(plain)
