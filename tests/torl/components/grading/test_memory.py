"""Verdicts are remembered: each pair is judged once, regardless of the caller."""

import threading
from concurrent.futures import ThreadPoolExecutor

from torl.components.grading import Verdict
from torl.components.grading.verdict import VerdictCache, pair_key

RIGHT = Verdict(correct=True)


def test_a_pair_is_judged_once_and_the_others_wait_for_it() -> None:
    memory, pair = VerdictCache(), pair_key("1", "2")
    assert memory.get(pair) is None
    with ThreadPoolExecutor(4) as others:
        asking = [others.submit(memory.get, pair) for _ in range(4)]
        memory.put(pair, RIGHT)
        assert [each.result(20) for each in asking] == [RIGHT] * 4
    assert memory.get(pair) == RIGHT


def test_undecided_pair_is_judged_again_by_the_next_caller() -> None:
    memory, pair = VerdictCache(), pair_key("1", "2")
    assert memory.get(pair) is None
    judged = threading.Semaphore(0)

    def judge() -> None:
        if memory.get(pair) is None:
            judged.release()
            memory.put(pair, RIGHT)

    with ThreadPoolExecutor(3) as others:
        asking = [others.submit(judge) for _ in range(3)]
        memory.put(pair, None)
        for each in asking:
            each.result(20)
    assert judged.acquire(blocking=False)
    assert not judged.acquire(blocking=False)


def test_the_oldest_are_forgotten() -> None:
    memory, pairs = VerdictCache(capacity=2), [pair_key("1", str(index)) for index in range(3)]
    for pair in pairs:
        assert memory.get(pair) is None
        memory.put(pair, RIGHT)
    assert [memory.get(pair) for pair in reversed(pairs)] == [RIGHT, RIGHT, None]


def test_pairs_that_differ_have_names_that_differ() -> None:
    pairs = [("1", "2"), ("2", "1"), ("12", ""), ("", "12"), ("1", "2 "), ("\ud800", "")]
    assert len({pair_key(*pair) for pair in pairs}) == len(pairs)
