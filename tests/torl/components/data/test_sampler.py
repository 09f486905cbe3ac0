"""Laws of the sampler: every epoch whole, every order its own, every resume exact."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Problem, Prompt
from torl.components.data import PromptSampler


def prompts(count: int, prefix: str = "p") -> list[Prompt]:
    return [Prompt(Problem(f"{prefix}{number}", "q", "1"), (number,)) for number in range(count)]


def ids(taken: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in taken]


# The sizes of a run of takes, as shares of the problem set.
SHARES = st.lists(st.floats(0, 1), max_size=12)


@given(st.integers(1, 20), st.integers(0, 2**32), SHARES)
def test_every_epoch_holds_every_problem_once_and_no_take_one_twice(count: int, seed: int, shares: list[float]) -> None:
    sampler = PromptSampler(prompts(count), seed)
    stream: list[str] = []
    for share in shares:
        taken = ids(sampler.take(round(share * count)))
        assert len(taken) == len(set(taken)) == round(share * count)
        stream += taken
    for start in range(0, len(stream), count):
        epoch = stream[start : start + count]
        assert len(set(epoch)) == len(epoch)
    assert sampler.epoch == max(0, len(stream) - 1) // count


@given(st.integers(1, 20), st.integers(0, 2**32), SHARES, SHARES)
def test_resuming_is_exact(count: int, seed: int, before: list[float], after: list[float]) -> None:
    sampler = PromptSampler(prompts(count), seed)
    for share in before:
        sampler.take(round(share * count))
    state = json.loads(json.dumps(sampler.state_dict()))
    resumed = PromptSampler(prompts(count)[::-1], seed)
    resumed.take(1)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == sampler.state_dict()
    for share in after:
        assert ids(resumed.take(round(share * count))) == ids(sampler.take(round(share * count)))


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="cannot take 7 prompts at once: only 6 are available"):
        PromptSampler(prompts(6), 0).take(7)


def test_orders_differ_by_epoch_and_seed() -> None:
    sampler, other = PromptSampler(prompts(50), 1), PromptSampler(prompts(50), 2)
    orders = [ids(sampler.take(50)), ids(sampler.take(50)), ids(other.take(50)), ids(prompts(50))]
    assert len({tuple(order) for order in orders}) == 4


def test_the_order_does_not_depend_on_the_order_of_the_file() -> None:
    assert ids(PromptSampler(prompts(20)[::-1], 5).take(20)) == ids(PromptSampler(prompts(20), 5).take(20))


def test_the_order_is_pinned() -> None:
    # A change here breaks the resume of every run that is under way.
    sampler = PromptSampler(prompts(6), 0)
    assert ids(sampler.take(4) + sampler.take(4) + sampler.take(4)) == PINNED


PINNED = ["p3", "p0", "p4", "p5", "p2", "p1", "p3", "p0", "p1", "p2", "p4", "p5"]


def test_positions_are_about_uniform() -> None:
    first = Counter(ids(PromptSampler(prompts(4), seed).take(1))[0] for seed in range(2000))
    assert all(400 < count < 600 for count in first.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problems": "other"}, "other problems"),
        ({"seed": 9}, "seed 9, not 3"),
        ({"position": 11}, "damaged: .*'position': 11"),
        ({"deferred": ["unknown"]}, "damaged"),
        ({"deferred": None}, "damaged"),
        ({"shared": "1"}, "damaged"),
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


@pytest.mark.parametrize("changed", [{"question": "another"}, {"answer": "another"}])
def test_other_problems_under_the_same_ids_are_refused(changed: dict[str, str]) -> None:
    before, after = prompts(3), prompts(3)
    after[1] = replace(after[1], problem=replace(after[1].problem, **changed))
    with pytest.raises(CheckpointError, match="other problems"):
        PromptSampler(after, 0).load_state_dict(PromptSampler(before, 0).state_dict())
    PromptSampler(before, 0).load_state_dict(PromptSampler(prompts(3), 0).state_dict())
