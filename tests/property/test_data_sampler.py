"""Laws of the sampler: every epoch whole, every order its own, every resume exact."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.data import PromptSampler
from torl.errors import CheckpointError, DataError
from torl.types import Problem, Prompt


def prompts(count: int, prefix: str = "p") -> list[Prompt]:
    return [Prompt(Problem(f"{prefix}{number}", "q", "1"), (number,)) for number in range(count)]


def ids(taken: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in taken]


@given(st.integers(1, 20), st.integers(0, 2**32), st.lists(st.integers(0, 30), max_size=6))
def test_any_cutting_gives_the_same_stream(count: int, seed: int, sizes: list[int]) -> None:
    whole = ids(PromptSampler(prompts(count), seed).take(sum(sizes)))
    pieces = PromptSampler(prompts(count), seed)
    assert [name for size in sizes for name in ids(pieces.take(size))] == whole


@given(st.integers(1, 20), st.integers(0, 2**32), st.integers(1, 4))
def test_every_epoch_holds_every_problem_once(count: int, seed: int, epochs: int) -> None:
    sampler = PromptSampler(prompts(count), seed)
    for epoch in range(epochs):
        assert Counter(ids(sampler.take(count))) == Counter(ids(prompts(count)))
        assert sampler.epoch == epoch


@given(st.integers(1, 20), st.integers(0, 2**32), st.integers(0, 70), st.integers(0, 70))
def test_resuming_is_exact(count: int, seed: int, before: int, after: int) -> None:
    sampler = PromptSampler(prompts(count), seed)
    sampler.take(before)
    state = json.loads(json.dumps(sampler.state_dict()))
    resumed = PromptSampler(prompts(count), seed)
    resumed.take(3)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == sampler.state_dict()
    assert ids(resumed.take(after)) == ids(sampler.take(after))


def test_orders_differ_by_epoch_and_seed() -> None:
    sampler, other = PromptSampler(prompts(50), 1), PromptSampler(prompts(50), 2)
    orders = [ids(sampler.take(50)), ids(sampler.take(50)), ids(other.take(50)), ids(prompts(50))]
    assert len({tuple(order) for order in orders}) == 4


def test_the_order_does_not_depend_on_the_order_of_the_file() -> None:
    assert ids(PromptSampler(prompts(20)[::-1], 5).take(30)) == ids(PromptSampler(prompts(20), 5).take(30))


def test_the_order_is_pinned() -> None:
    # A change here breaks the resume of every run that is under way.
    assert ids(PromptSampler(prompts(6), 0).take(8)) == PINNED


PINNED = ["p3", "p0", "p4", "p5", "p2", "p1", "p3", "p0"]


def test_positions_are_about_uniform() -> None:
    first = Counter(ids(PromptSampler(prompts(4), seed).take(1))[0] for seed in range(2000))
    assert all(400 < count < 600 for count in first.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problems": "other"}, "other problems"),
        ({"seed": 9}, "seed 9, not 3"),
        ({"position": 11}, "damaged: epoch 0, position 11"),
        ({"epoch": -1}, "damaged"),
        ({"position": None}, "damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict[str, object], words: str) -> None:
    sampler = PromptSampler(prompts(10), 3)
    with pytest.raises(CheckpointError, match=words):
        sampler.load_state_dict(sampler.state_dict() | change)


def test_no_problems_and_equal_ids_are_refused() -> None:
    with pytest.raises(DataError, match="no problems"):
        PromptSampler([], 0)
    with pytest.raises(DataError, match="same id"):
        PromptSampler(prompts(1) * 2, 0)
