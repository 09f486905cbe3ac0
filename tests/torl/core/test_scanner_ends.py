"""Fences as published codes read them, and stop strings: equal to a reading of the whole turn, however it is cut."""

import pickle
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reference import fenced_blocks, first_stop, token_at
from torl._core import Scanner, StopCondition, Vocabulary

PIECES = [
    "```python", "```output", "```", "``", "`", "python", "3", " copy", "\n", "\n\n", " ", "\t", "\r\n", "print(1)",
    "'", "```python\n", "\n```\n", "````", "```py", "é", "🙂", "User:", "Us", "er: ", "</answer>", "</ans", "wer>", "<",
    "aab",
]  # fmt: skip
STOPS = ["User:", "Human:", "</answer>", "</", "er: ", "aab", "é", "``", "\n\n"]

texts = st.lists(st.sampled_from(PIECES), max_size=40).map(lambda pieces: "".join(pieces).encode())
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=12)
stop_lists = st.lists(st.sampled_from(STOPS), max_size=3)
fences = st.sampled_from(["line_ends", "anywhere"])
CALLS = {
    "never": StopCondition.never,
    "block": StopCondition.block,
    "marker": lambda fences: StopCondition.marker(b"```output", fences=fences),
}


def cut(text: bytes, lengths: list[int]) -> list[bytes]:
    """Tokens of these lengths, over and over, each before an empty one."""
    tokens, start, turn = [], 0, 0
    while start < len(text):
        stop = start + lengths[turn % len(lengths)]
        tokens += [text[start:stop], b""]
        start, turn = stop, turn + 1
    return tokens


@settings(max_examples=1500)
@given(texts, cuts, fences, st.sampled_from(sorted(CALLS)), stop_lists, st.booleans(), st.booleans())
@example(b"a ```python\nx\n```\n```output", [4], "line_ends", "marker", [], True, True)
@example(b"```python\nx = '```python\ny\n```", [7], "line_ends", "never", [], True, False)
@example(b"<think>```python print(1)```\n", [3], "anywhere", "block", [], False, True)
@example(b"aaab", [1], "anywhere", "never", ["aab"], True, True)
@example(b"```output", [2], "anywhere", "marker", ["``"], True, False)
def test_any_cut_equals_a_reading_of_the_whole_turn(text, lengths, fences, call, stops, at_line_start, one_by_one):
    tokens = cut(text, lengths)
    end = CALLS[call](fences=fences).with_stops(stops)
    scanner = Scanner(Vocabulary(tokens), end, at_line_start)
    blocks, marker, stop, overshoot, consumed = [], None, None, None, 0
    for ids in [[token_id] for token_id in range(len(tokens))] if one_by_one else [range(len(tokens))]:
        scan = scanner.feed(ids)
        blocks += scan.blocks
        marker, stop, overshoot = scan.marker, scan.stop, scan.overshoot
        consumed += scan.consumed
        if scan.overshoot is not None:
            break

    whole = fenced_blocks(text, fences, at_line_start)
    ends = [block.end for block in whole[:1]] if call == "block" else []
    place = text.find(b"```output") if call == "marker" else -1
    ends += [place + len(b"```output")] if place >= 0 else []
    stopped = first_stop(text, [stop.encode() for stop in stops])
    called = bool(ends) and (stopped is None or ends[0] <= stopped[1])
    last = ends[0] if called else len(text) if stopped is None else stopped[1]
    expected = [block for block in whole if block.end <= last]
    assert [(block.code.encode(), block.start, block.stop) for block in blocks] == [
        (block.code, block.start, block.stop) for block in expected
    ]
    assert (marker is not None) == (called and call == "marker")
    assert (None if stop is None else (stop.start, stop.stop)) == (None if called else stopped)
    if not called and stopped is None:
        assert (overshoot, consumed) == (None, len(tokens))
    else:
        index, rest = token_at(tokens, last - 1)
        assert (overshoot, consumed) == (rest, index + 1)


@given(fences, st.sampled_from(sorted(CALLS)), stop_lists)
def test_the_end_of_a_turn_is_a_value(fences, call, stops):
    end = CALLS[call](fences=fences).with_stops(stops)
    for same in (
        pickle.loads(pickle.dumps(end)),
        StopCondition.from_plain(end.to_plain()),
        eval(repr(end), {"StopCondition": StopCondition}),
    ):
        assert (same, hash(same)) == (end, hash(end))
    assert (end.kind, end.fences, end.stops) == (call, fences, stops)
    assert end.without_call() == StopCondition.never(fences=fences).with_stops(stops)
    assert end != CALLS[call](fences="lines").with_stops(stops)
    assert end != end.with_stops([*stops, "more"])


TAGS = [("<c>", "</c>"), ("|", "|"), ("aab", "ab"), ("[[", "]]"), ("é", "</c>")]
tagged = st.lists(st.sampled_from([*"<>/c|aab[]é", "<c>", "</c>", "aab", "```python\n", "\n```", "User:"]), max_size=40)


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(TAGS), tagged.map("".join), cuts, st.booleans())
def test_blocks_between_tags_equal_those_of_a_regular_expression(tags, text, lengths, one_by_one):
    data = text.encode()
    tokens = cut(data, lengths)
    scanner = Scanner(Vocabulary(tokens), StopCondition.tagged(*(tag.encode() for tag in tags)))
    pieces = [[token_id] for token_id in range(len(tokens))] if one_by_one else [range(len(tokens))]
    blocks = [block for ids in pieces for block in scanner.feed(ids).blocks]
    found = re.finditer(b"%b(.*?)%b" % tuple(re.escape(tag.encode()) for tag in tags), data, re.DOTALL)
    assert [(block.start, block.stop, block.code.encode()) for block in blocks] == [
        (*match.span(1), match[1]) for match in found
    ]
    assert not scanner.is_finished
