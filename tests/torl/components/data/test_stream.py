"""Laws of the sampler that streams: every epoch whole, every resume exact, and no more in memory than its buffer."""

import json
import tracemalloc
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.base.errors import CheckpointError, DataError
from torl.base.types import Problem, Prompt
from torl.components.data import StreamSampler, load_problems, stream_problems


def prompts(count: int, prefix: str = "p") -> list[Prompt]:
    return [Prompt(Problem(f"{prefix}{number}", "q", "1"), (number,)) for number in range(count)]


def ids(taken: list[Prompt]) -> list[str]:
    return [prompt.problem.id for prompt in taken]


COUNTS, BUFFERS, SEEDS = st.integers(1, 20), st.integers(1, 25), st.integers(0, 2**32)
# The sizes of a run of takes, as shares of what can be taken at once.
SHARES = st.lists(st.floats(0, 1), max_size=20)


@settings(deadline=None)
@given(COUNTS, BUFFERS, SEEDS, SHARES)
def test_every_epoch_holds_every_problem_once_and_no_take_one_twice(
    count: int, buffer: int, seed: int, shares: list[float]
) -> None:
    sampler = StreamSampler(prompts(count), seed, buffer)
    assert len(sampler) == min(count, buffer)
    stream: list[str] = []
    for share in shares:
        taken = ids(sampler.take(round(share * len(sampler))))
        assert len(taken) == len(set(taken)) == round(share * len(sampler))
        stream += taken
    for start in range(0, len(stream), count):
        epoch = stream[start : start + count]
        assert len(set(epoch)) == len(epoch)
    assert sampler.epoch == max(0, len(stream) - 1) // count


@settings(deadline=None)
@given(COUNTS, BUFFERS, SEEDS, SHARES, SHARES)
def test_resuming_is_exact(count: int, buffer: int, seed: int, before: list[float], after: list[float]) -> None:
    sampler = StreamSampler(prompts(count), seed, buffer)
    for share in before:
        sampler.take(round(share * len(sampler)))
    state = json.loads(json.dumps(sampler.state_dict()))
    resumed = StreamSampler(prompts(count), seed, buffer)
    resumed.take(1)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == sampler.state_dict()
    for share in after:
        assert ids(resumed.take(round(share * len(sampler)))) == ids(sampler.take(round(share * len(sampler))))


COPIED = st.lists(st.integers(0, 6), min_size=1, max_size=25).map(lambda numbers: [prompts(7)[n] for n in numbers])


@settings(deadline=None)
@given(COPIED, BUFFERS, SEEDS, SHARES, SHARES)
def test_copies_of_a_prompt_are_never_taken_together(
    copied: list[Prompt], buffer: int, seed: int, before: list[float], after: list[float]
) -> None:
    """As in DAPO's file, which has each problem a hundred times; also in a run that resumes."""
    sampler, resumed = StreamSampler(copied, seed, buffer), StreamSampler(copied, seed, buffer)
    for share in before:
        taken = ids(sampler.take(round(share * len(sampler))))
        assert len(taken) == len(set(taken)) == round(share * len(sampler))
    resumed.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    for share in after:
        assert ids(resumed.take(round(share * len(sampler)))) == ids(sampler.take(round(share * len(sampler))))


@settings(deadline=None)
@given(COUNTS, BUFFERS, SEEDS)
def test_no_prompt_comes_earlier_than_the_buffer_lets_it(count: int, buffer: int, seed: int) -> None:
    sampler = StreamSampler(prompts(count), seed, buffer)
    drawn = [int(sampler.take(1)[0].problem.id[1:]) for _ in range(count)]
    assert all(number < place + buffer for place, number in enumerate(drawn))


def test_order_differs_by_seed_and_epoch() -> None:
    orders = {tuple(ids(StreamSampler(prompts(30), seed, 30).take(30))) for seed in range(5)}
    sampler = StreamSampler(prompts(30), 0, 30)
    orders |= {tuple(ids(sampler.take(30))) for _ in range(5)}
    assert len(orders) == 9  # the first epoch of seed 0 is there twice


def test_a_buffer_of_one_keeps_the_order_of_the_file() -> None:
    sampler = StreamSampler(prompts(5), 3, 1)
    assert [ids(sampler.take(1))[0] for _ in range(10)] == ids(prompts(5)) * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"sampler": "shuffled"}, "written with data.sampler shuffled, not stream"),
        (lambda state: state | {"seed": 1}, "written with seed 1, not 0"),
        (lambda state: state | {"buffer_size": 9}, "written with buffer_size 9, not 4"),
        (lambda state: state | {"drawn": None}, "position is damaged"),
        (lambda state: state | {"deferred": list("abcde")}, "position is damaged"),
        (lambda state: state | {"drawn": 99}, "written with other problems"),
    ],
)
def test_a_state_that_is_not_its_own_is_refused(
    change: Callable[[dict[str, object]], dict[str, object]], message: str
) -> None:
    sampler = StreamSampler(prompts(8), 0, 4)
    sampler.take(3)
    with pytest.raises(CheckpointError, match=message):
        StreamSampler(prompts(8), 0, 4).load_state_dict(change(sampler.state_dict()))
    with pytest.raises(CheckpointError, match="written with other problems"):
        StreamSampler(prompts(8, "other"), 0, 4).load_state_dict(sampler.state_dict())


def test_unsampleable_requests_raise() -> None:
    with pytest.raises(DataError, match="no problems to sample from"):
        StreamSampler([], 0)
    with pytest.raises(DataError, match=r"buffer_size = 0 must be at least 1"):
        StreamSampler(prompts(2), 0, 0)
    other = Prompt(Problem("p0", "another question", "1"), (0,))
    with pytest.raises(DataError, match="two problems have the same id, 'p0'"):
        StreamSampler([*prompts(1), other], 0)
    with pytest.raises(DataError, match="two problems have the same id"):
        StreamSampler([*prompts(3), other], 0, 3).take(3)
    with pytest.raises(ValueError, match="cannot take 5 prompts at once: only 4 are available"):
        StreamSampler(prompts(8), 0, 4).take(5)


# --- a file that does not fit -----------------------------------------------------------------------------------------


def generate(path: Path, count: int) -> Path:
    """A file of problems of two thousand characters each."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {"id": f"p{number}", "problem": f"{number} " * 200, "answer": number, "solution": "x" * 1000}
            file.write(json.dumps(row) + "\n")
    return path


def peak_bytes(path: Path, count: int) -> int:
    """Most memory that is held while `count` problems are taken, ten at a time."""

    class Encoded:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return (Prompt(problem, (1,)) for problem in stream_problems(path))

    tracemalloc.start()
    sampler = StreamSampler(Encoded(), 0, buffer_size=50)
    for _ in range(count // 10):
        sampler.take(10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_memory_is_that_of_the_buffer_however_long_the_file_is(tmp_path: Path) -> None:
    short, long = generate(tmp_path / "short.jsonl", 300), generate(tmp_path / "long.jsonl", 3000)
    peaks = peak_bytes(short, 300), peak_bytes(long, 3000)
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < long.stat().st_size / 10


def test_a_stream_gives_the_problems_of_the_file(tmp_path: Path) -> None:
    path = generate(tmp_path / "some.jsonl", 20)
    assert list(stream_problems(path)) == load_problems(path)
    assert [problem.id for problem in islice(stream_problems(path), 2)] == ["p0", "p1"]


def test_a_stream_with_too_many_unanswered_ends_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"problem": "a", "answer": "1"}\n{"problem": "b", "answer": ""}\n')
    reading = stream_problems(path)
    assert next(reading).question == "a"
    with pytest.raises(DataError, match="line 2: the answer is empty"):
        next(reading)
