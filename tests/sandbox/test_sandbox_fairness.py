"""Callers share a pool: one with many runs does not hold up another."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from torl_sandbox import SandboxPool

SLOW = "for i in range(4 * 10**5): pass\nprint({})"  # some 25 ms


@pytest.fixture
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, result_cache_bytes=0) as pool:
        yield pool


def in_another_thread(pool: SandboxPool, prints: int) -> None:
    """Runs one print after the other, by a separate caller: its thread."""

    def ask() -> None:
        for number in range(prints):
            assert pool.run(f"print({number})").stdout == f"{number}\n"

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()


def with_a_name(pool: SandboxPool, prints: int) -> None:
    for number in range(prints):
        assert pool.run(f"print({number})", caller="another").stdout == f"{number}\n"


def as_a_session(pool: SandboxPool, prints: int) -> None:
    session = pool.session(caller="another")
    for number in range(prints):
        assert session.run(f"print({number})").stdout == f"{number}\n"


@pytest.mark.parametrize("ask", [in_another_thread, with_a_name, as_a_session])
def test_a_print_waits_for_one_slow_run_of_another_not_for_all(
    pool: SandboxPool, ask: Callable[[SandboxPool, int], None]
) -> None:
    futures = [pool.submit(SLOW.format(number)) for number in range(1000)]
    before, prints = sum(future.done() for future in futures), 10
    ask(pool, prints)
    # One may be under way when a print comes, and one begins before the next print is asked for.
    assert sum(future.done() for future in futures) - before <= 2 * prints + 2
    for future in futures:
        future.cancel()


def test_a_caller_alone_has_all_workers() -> None:
    with SandboxPool(2, result_cache_bytes=0) as pool:
        futures = [pool.submit("while True: pass") for _ in range(4)]
        deadline = time.monotonic() + 60
        while pool.stats()["running"] < 2:
            assert time.monotonic() < deadline
        for future in futures:
            future.cancel()


def test_a_caller_with_many_threads_by_one_name_has_one_share(pool: SandboxPool) -> None:
    """A server's requests come on separate threads, and are one caller if it asks for that."""
    crowd = [pool.submit(SLOW.format(number), caller="server") for number in range(100)]
    others = [pool.submit(SLOW.format(-number), caller="training") for number in range(10)]
    for future in others:
        future.result()
    assert 7 <= sum(future.done() for future in crowd) <= 13
    for future in crowd:
        future.cancel()


async def test_twenty_thousand_runs_are_cancelled_at_once(pool: SandboxPool) -> None:
    """A scan of the queue for each takes a million times a million steps: seconds."""
    runs = [asyncio.ensure_future(pool.run_async("while True: pass", seed=number)) for number in range(20_000)]
    while pool.stats()["queued"] < len(runs) - 1:
        await asyncio.sleep(0.01)
    start = time.thread_time()
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    spent = time.thread_time() - start
    assert (pool.stats()["queued"], pool.stats()["cancelled"]) == (0, len(runs))
    assert pool.run("print(1)").ok
    print(f"{spent:.2f} s")
