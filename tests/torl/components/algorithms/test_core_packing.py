"""Laws of packing: every item once, no row too full, equal rows for each rank, near-equal tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import first_fit_decreasing
from torl._core import pack

CAPACITY = 64
lengths_of_items = st.lists(st.integers(0, CAPACITY), max_size=80)


@settings(max_examples=500)
@given(lengths_of_items, st.integers(1, 6))
def test_laws(lengths, ranks) -> None:
    packed = pack(lengths, CAPACITY, ranks)
    rows = [row for rank in packed for row in rank]
    assert len(packed) == ranks
    assert len({len(rank) for rank in packed}) == 1
    assert sorted(item for row in rows for item in row) == list(range(len(lengths)))
    tokens = [sum(lengths[item] for item in row) for row in rows]
    assert all(count <= CAPACITY for count in tokens)
    assert len(packed[0]) == -(-first_fit_decreasing(lengths, CAPACITY) // ranks)
    assert packed == pack(lengths, CAPACITY, ranks)
    # Rows are dealt fullest first, so no two ranks are further apart than the fullest row.
    loads = [sum(lengths[item] for row in rank for item in row) for rank in packed]
    assert max(loads) - min(loads) <= max(tokens, default=0)


@settings(max_examples=200)
@given(st.lists(st.integers(1, 8), min_size=32, max_size=200), st.sampled_from([2, 3, 4, 8]))
def test_many_short_items_are_spread_evenly(lengths, ranks) -> None:
    """If rows have room, the ranks' tokens differ by no more than about one item for each row."""
    packed = pack(lengths, 256, ranks)
    loads = [sum(lengths[item] for row in rank for item in row) for rank in packed]
    assert max(loads) - min(loads) <= max(lengths) * len(packed[0])


def test_a_realistic_batch_is_full_and_even() -> None:
    lengths = [400 + (index * 7919) % 2600 for index in range(2048)]
    packed = pack(lengths, 16384, 8)
    loads = [sum(lengths[item] for row in rank for item in row) for rank in packed]
    assert sum(loads) / (8 * len(packed[0]) * 16384) > 0.95
    assert max(loads) / min(loads) < 1.01


def test_refusals_name_the_item() -> None:
    with pytest.raises(ValueError, match="item 2 has 65 tokens"):
        pack([1, 64, 65], CAPACITY, 1)
    for capacity, ranks in [(0, 1), (1, 0)]:
        with pytest.raises(ValueError, match="at least 1"):
            pack([], capacity, ranks)
    with pytest.raises(OverflowError):
        pack([-1], CAPACITY, 1)
