"""The scanner is exact to the byte: it equals a literal reading of the whole turn, however the bytes are cut."""

from functools import cache

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from reference import ReferenceScan, scan_bytes, token_at
from tokenizers_for_tests import byte_level_bpe, metaspace_bpe, metaspace_unigram
from torl._core import CodeBlock, MarkerMatch, Scanner, StopCondition, Vocabulary
from torl.components.text.vocabulary import token_bytes

MARKER = b"```output"
END = StopCondition.marker(MARKER)
SOUP = [
    "```python", "```output", "```", "``", "`", "python", "out", "put", "output", "\n", "\n\n", " ", "\t", "\r\n",
    "print(1)", "x = '", "'", "```python\n", "```python \n", "\n```\n", "\n```", "````", "```py", "3", "é", "北", "🙂",
]  # fmt: skip

soup_text = st.lists(st.sampled_from(SOUP), max_size=40).map("".join)
soup_bytes = st.lists(
    st.one_of(st.sampled_from([piece.encode() for piece in SOUP]), st.binary(max_size=3)), max_size=40
).map(b"".join)
markers = st.sampled_from([MARKER, None, b"\n", b"```", b"aab", b"python\n", b"`\n`", b"```output\n```output"])
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def cut(sequence, lengths):
    """Pieces of the lengths given, over and over."""
    pieces, start, turn = [], 0, 0
    while start < len(sequence):
        stop = start + lengths[turn % len(lengths)]
        pieces.append(sequence[start:stop])
        start, turn = stop, turn + 1
    return pieces


def ends_at(marker: bytes | None) -> StopCondition:
    return StopCondition.never() if marker is None else StopCondition.marker(marker)


def found(blocks: list[CodeBlock], marker: MarkerMatch | None):
    """All reports of the scanner, as plain values."""
    fields = [(block.code, block.start, block.stop, block.overshoot) for block in blocks]
    return fields, None if marker is None else (marker.start, marker.stop, marker.overshoot)


def expected(scan: ReferenceScan, tokens: list[bytes]):
    """The same values from the literal reading."""
    fields = [
        (block.code.decode(errors="replace"), block.start, block.stop, token_at(tokens, block.end - 1)[1])
        for block in scan.blocks
    ]
    if scan.marker is None:
        return fields, None
    start, stop, _ = scan.marker
    return fields, (start, stop, token_at(tokens, stop - 1)[1])


def feed_pieces(scanner: Scanner, pieces):
    """Feed until the turn is over; return the reports, and how many ids were read."""
    blocks, consumed = [], 0
    for piece in pieces:
        scan = scanner.feed(piece)
        blocks += scan.blocks
        consumed += scan.consumed
        assert (scan.overshoot is None) == (not scanner.is_finished)
        if scan.overshoot is not None:
            last = blocks[-1] if scan.marker is None else scan.marker
            assert scan.overshoot == last.overshoot
            return found(blocks, scan.marker), consumed
        assert scan.consumed == len(piece)
    return found(blocks, None), consumed


@settings(max_examples=1000)
@given(soup_bytes, cuts, cuts, markers, st.booleans())
@example(b"```python\nx\n```output", [4], [1], MARKER, True)
@example(b"```python\nx = '```output", [7], [1], MARKER, True)
@example(b"```python\n```python\n```", [3, 8], [2], MARKER, True)
@example(b"`````output\n1", [2, 5], [1], MARKER, True)
def test_any_cut_equals_a_literal_reading(text, token_lengths, piece_lengths, marker, at_line_start):
    """Tokens that are arbitrary byte strings, some of them empty; calls that are arbitrary pieces."""
    tokens = [token for piece in cut(text, token_lengths) for token in (piece, b"")]
    scanner = Scanner(Vocabulary(tokens), ends_at(marker), at_line_start)
    result, consumed = feed_pieces(scanner, cut(range(len(tokens)), piece_lengths))
    scan = scan_bytes(text, marker, at_line_start)
    assert result == expected(scan, tokens)
    assert consumed == (len(tokens) if scan.marker is None else token_at(tokens, scan.marker[1] - 1)[0] + 1)
    assert scanner.is_finished == (scan.marker is not None)
    assert scan.marker is None or scanner.block_is_open == scan.marker[2]


@settings(max_examples=1000)
@given(soup_bytes, cuts, cuts, st.booleans())
@example(b"```python\nx\n```\n\n", [4], [1], True)
@example(b"```python\nx = '```'\n```python\n", [16, 9], [1], True)
@example(b"```\n```python\n```", [3, 8], [2], False)
def test_a_turn_that_ends_with_its_first_block(text, token_lengths, piece_lengths, at_line_start):
    """The cut is the token with the third backtick of the closing fence, and nothing after it is read."""
    tokens = [token for piece in cut(text, token_lengths) for token in (piece, b"")]
    scanner = Scanner(Vocabulary(tokens), StopCondition.block(), at_line_start)
    result, consumed = feed_pieces(scanner, cut(range(len(tokens)), piece_lengths))
    scan = scan_bytes(text, None, at_line_start, stop_at_block=True)
    assert result == expected(scan, tokens)
    assert scanner.is_finished == bool(scan.blocks)
    assert consumed == (token_at(tokens, scan.blocks[0].end - 1)[0] + 1 if scan.blocks else len(tokens))


@cache
def families():
    """Every family of tokenizers, with its bytes and its vocabulary."""
    tokenizers = [byte_level_bpe(), byte_level_bpe(290), metaspace_bpe(), metaspace_unigram()]
    tables = [token_bytes(tokenizer) for tokenizer in tokenizers]
    return [(tokenizer, table, Vocabulary(table)) for tokenizer, table in zip(tokenizers, tables, strict=True)]


@settings(max_examples=400)
@given(st.integers(0, 3), soup_text, cuts)
def test_vocabularies_of_real_families(family, text, piece_lengths):
    tokenizer, table, vocabulary = families()[family]
    ids = tokenizer.encode(text, add_special_tokens=False)
    tokens = [table[index] for index in ids]
    whole, consumed = feed_pieces(Scanner(vocabulary, END), [ids])
    assert (whole, consumed) == feed_pieces(Scanner(vocabulary, END), cut(ids, piece_lengths))
    assert whole == expected(scan_bytes(b"".join(tokens), MARKER), tokens)
    first, consumed = feed_pieces(Scanner(vocabulary, StopCondition.block()), cut(ids, piece_lengths))
    scan = scan_bytes(b"".join(tokens), None, stop_at_block=True)
    assert first == expected(scan, tokens)
    assert consumed == (token_at(tokens, scan.blocks[0].end - 1)[0] + 1 if scan.blocks else len(ids))


@settings(max_examples=300)
@given(st.integers(0, 3), st.lists(st.integers(0, 600), max_size=60), cuts)
def test_ids_in_any_order(family, ids, piece_lengths):
    """A model may sample anything: half characters, special tokens, rows of a padded embedding."""
    _, table, vocabulary = families()[family]
    tokens = [table[index] if index < len(table) else b"" for index in ids]
    result, _ = feed_pieces(Scanner(vocabulary, StopCondition.marker(b"e")), cut(ids, piece_lengths))
    assert result == expected(scan_bytes(b"".join(tokens), b"e"), tokens)
    assert vocabulary.decode_bytes(ids) == b"".join(tokens)
    assert vocabulary.decode(ids) == b"".join(tokens).decode(errors="replace")


@settings(max_examples=300)
@given(soup_bytes, soup_bytes, cuts, st.booleans())
def test_a_turn_knows_nothing_of_the_turn_before(first, second, token_lengths, at_line_start):
    pieces = [cut(first, token_lengths), cut(second, token_lengths)]
    vocabulary = Vocabulary([*pieces[0], *pieces[1]])
    ids = [range(len(pieces[0])), range(len(pieces[0]), len(pieces[0]) + len(pieces[1]))]
    before, after = Scanner(vocabulary, END), Scanner(vocabulary, END, at_line_start)
    alone = Scanner(Vocabulary(pieces[1]), StopCondition.marker(MARKER), at_line_start)
    before.feed(ids[0])
    assert feed_pieces(after, [ids[1]]) == feed_pieces(alone, [range(len(pieces[1]))])


@given(soup_bytes, cuts, markers)
def test_every_event_is_reported_at_its_completing_token(text, token_lengths, marker):
    tokens = cut(text, token_lengths)
    scanner, reply = Scanner(Vocabulary(tokens), ends_at(marker)), []
    for token_id in range(len(tokens)):
        scan = scanner.feed([token_id])
        reply += [token_id] * (len(scan.blocks) + (scan.marker is not None))
        if scanner.is_finished:
            break
    reference = scan_bytes(text, marker)
    ends = [block.end for block in reference.blocks] + ([reference.marker[1]] if reference.marker else [])
    assert reply == [token_at(tokens, end - 1)[0] for end in ends]


@settings(max_examples=300)
@given(soup_bytes, cuts, st.sampled_from(["c", "c++", "objective-c", "f#", "r2"]), st.booleans())
def test_any_language_opens_blocks_as_python_does(text, token_lengths, language, at_line_start):
    """In a format where "python" is a language of another name, that name is text that opens nothing."""
    other = text.replace(b"python", language.encode())
    scans = []
    for source, name in ((text, "python"), (other, language)):
        tokens = cut(source, token_lengths)
        scanner = Scanner(Vocabulary(tokens), StopCondition.never(), at_line_start, language=name)
        scans.append([block.code for block in scanner.feed(range(len(tokens))).blocks])
    assume(language.encode() not in text.replace(b"python", b""))
    assert [code.replace("python", language) for code in scans[0]] == scans[1]
    none = Scanner(Vocabulary([text]), StopCondition.never(), at_line_start, language=f"{language}x").feed([0])
    assert none.blocks == []


@given(soup_bytes, cuts, markers)
def test_a_token_alone_is_a_piece_of_one(text, token_lengths, marker):
    tokens = cut(text, token_lengths)
    vocabulary = Vocabulary(tokens)
    pieces, alone = Scanner(vocabulary, ends_at(marker)), Scanner(vocabulary, ends_at(marker))
    for token_id in range(len(tokens)):
        piece, scan = pieces.feed([token_id]), alone.feed_token(token_id)
        assert (scan is None) == (not piece.blocks and piece.marker is None)
        if scan is not None:
            assert found(scan.blocks, scan.marker) == found(piece.blocks, piece.marker)
            assert (scan.consumed, scan.overshoot) == (piece.consumed, piece.overshoot)
        if pieces.is_finished:
            break
    assert alone.is_finished == pieces.is_finished
