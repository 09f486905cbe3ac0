"""The pool: many callers at once, workers that die, runs taken back, ends of every kind."""

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from torl_sandbox import Execution, Interpreter, OutcomeStatus, SandboxError, SandboxPool


@pytest.mark.parametrize("code", [b"print(1)", None, 1], ids=repr)
def test_code_of_another_type_is_a_type_error(pool: SandboxPool, code: object) -> None:
    refused: list[Callable[[], object]] = [
        lambda: pool.run(code),  # type: ignore[arg-type]
        lambda: asyncio.run(pool.run_async(code)),  # type: ignore[arg-type]
        lambda: pool.submit(code),  # type: ignore[arg-type]
        lambda: pool.session().run(code),  # type: ignore[arg-type]
        lambda: pool.run_batch(["print(1)", code]),  # type: ignore[list-item]
        lambda: list(pool.as_completed(["print(1)", "print(2)", code])),  # type: ignore[list-item]
    ]
    for call in refused:
        with pytest.raises(TypeError, match="code must be a str, got "):
            call()
    counts = pool.stats()
    assert sum(counts.values()) == 0  # nothing ran, nothing runs


@pytest.fixture
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(2, cpu_seconds=30) as pool:
        yield pool


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits for `condition`, and fails if it never holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def state_of(pid: int) -> str | None:
    """The kernel's letter for the state of a process: "Z" for a zombie, "T" for a stopped one; None if it exited."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second: it went between opening and reading
        return None


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    return state_of(pid) not in (None, "Z")


def descendants_of_this_process() -> set[int]:
    """The children of all threads of this process, zombies too."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            children |= {int(pid) for pid in (thread / "children").read_text().split()}
    return children


def test_it_is_an_interpreter(pool: SandboxPool) -> None:
    assert isinstance(pool, Interpreter)


def test_self_test_passes(pool: SandboxPool) -> None:
    pool.self_test()


def test_a_batch_keeps_its_order(pool: SandboxPool) -> None:
    outcomes = pool.run_batch([f"print({i} * {i})" for i in range(200)])
    assert [outcome.stdout for outcome in outcomes] == [f"{i * i}\n" for i in range(200)]
    assert pool.stats() == {
        "ok": 200, "error": 0, "timeout": 0, "memory": 0, "output_limit": 0, "crash": 0,
        "shared": 0, "cancelled": 0, "retried": 0, "workers_replaced": 0, "failed_starts": 0,
        "queued": 0, "running": 0,
    }  # fmt: skip


async def test_a_thousand_runs_at_once(pool: SandboxPool) -> None:
    outcomes = await asyncio.gather(*(pool.run_async(f"print({i})\n{i} / ({i} % 2)") for i in range(1000)))
    assert [outcome.stdout for outcome in outcomes] == [f"{i}\n" for i in range(1000)]
    assert [outcome.ok for outcome in outcomes] == [i % 2 == 1 for i in range(1000)]
    assert (pool.stats()["ok"], pool.stats()["error"]) == (500, 500)


async def test_a_slow_run_does_not_hold_the_others(pool: SandboxPool) -> None:
    slow = asyncio.create_task(pool.run_async("while True: pass"))
    quick = await asyncio.gather(*(pool.run_async("print(1)") for _ in range(50)))
    assert all(outcome.ok for outcome in quick)
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert pool.stats()["cancelled"] == 1


async def test_a_cancelled_run_frees_its_worker() -> None:
    with SandboxPool(1, cpu_seconds=60) as pool:
        running = asyncio.create_task(pool.run_async("while True: pass"))
        queued = asyncio.create_task(pool.run_async("print('never')"))
        await asyncio.to_thread(until, lambda: pool.stats()["running"] == 1 and pool.stats()["queued"] == 1)
        queued.cancel()
        running.cancel()
        assert [type(r) for r in await asyncio.gather(running, queued, return_exceptions=True)] == [
            asyncio.CancelledError,
            asyncio.CancelledError,
        ]
        assert (await pool.run_async("print(2)")).stdout == "2\n"
        assert pool.stats()["cancelled"] == 2
        assert pool.stats()["ok"] == 1


def test_equal_runs_are_executed_once(pool: SandboxPool) -> None:
    slow = "print(sum(range(2 * 10**6)))"
    futures = [pool.submit(slow) for _ in range(50)]
    assert {future.result().stdout for future in futures} == {f"{sum(range(2 * 10**6))}\n"}
    assert pool.run(slow) == futures[0].result()
    assert (pool.stats()["ok"], pool.stats()["shared"]) == (1, 50)
    pool.run(slow, seed=1)
    assert (pool.stats()["ok"], pool.stats()["shared"]) == (2, 50)


def test_a_time_out_is_not_shared() -> None:
    with SandboxPool(2, cpu_seconds=0.1) as pool:
        outcomes = pool.run_batch(["while True: pass"] * 3)
        assert [outcome.status for outcome in outcomes] == [OutcomeStatus.TIMEOUT] * 3
        assert (pool.stats()["timeout"], pool.stats()["shared"]) == (3, 0)


def test_waiters_for_a_cancelled_run_start_their_own(pool: SandboxPool) -> None:
    slow = "print(sum(range(15 * 10**6)))"  # a second: it is cancelled before it ends
    first, *others = [pool.submit(slow) for _ in range(4)]
    until(lambda: pool.stats()["running"] == 1)
    assert first.cancel()
    assert {future.result().stdout for future in others} == {f"{sum(range(15 * 10**6))}\n"}
    assert (pool.stats()["ok"], pool.stats()["shared"], pool.stats()["cancelled"]) == (1, 2, 1)


def test_a_run_that_loses_its_worker_is_not_shared() -> None:
    with SandboxPool(1, cpu_seconds=30) as pool:
        futures = [pool.submit("while True: pass") for _ in range(2)]
        for future in futures:
            kill_until_done(pool, future)
        assert [future.result().status for future in futures] == [OutcomeStatus.CRASH] * 2
        assert (pool.stats()["crash"], pool.stats()["shared"]) == (2, 0)


def test_outcomes_come_as_they_are_completed(pool: SandboxPool) -> None:
    codes = ["while True: pass", *(f"print({i})" for i in range(20))]
    completed = pool.as_completed(codes)
    seen = dict(next(completed) for _ in range(20))
    assert {index: outcome.stdout for index, outcome in seen.items()} == {i + 1: f"{i}\n" for i in range(20)}
    completed.close()  # type: ignore[attr-defined]
    until(lambda: pool.stats()["running"] == 0)
    assert pool.stats()["cancelled"] == 1


def test_latency_is_counted(pool: SandboxPool) -> None:
    pool.run_batch([f"print({i})" for i in range(30)])
    assert sum(count for _, count in pool.latency()) == 30
    assert all(later == 2 * earlier for (earlier, _), (later, _) in pairwise(pool.latency()))


def test_a_signal_interrupts_a_waiting_caller(pool: SandboxPool) -> None:
    def stop(number: int, frame: object) -> None:
        raise InterruptedError("stop")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for call in (lambda: pool.run("while True: pass"), lambda: pool.run_batch(["while True: pass"] * 3)):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(InterruptedError):
                call()
    finally:
        signal.signal(signal.SIGALRM, before)
    until(lambda: pool.stats()["running"] == pool.stats()["queued"] == 0)
    assert pool.run("print(1)").ok


def test_signal_interrupts_a_caller_with_a_blocked_worker() -> None:
    def stop(number: int, frame: object) -> None:
        raise InterruptedError("stop")

    before = signal.signal(signal.SIGALRM, stop)
    with SandboxPool(1, wall_seconds=120) as pool:
        (worker,) = pool.processes()
        os.kill(worker, signal.SIGSTOP)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            start = time.monotonic()
            with pytest.raises(InterruptedError):
                pool.run("pass", stdin=bytes(10 << 20))
            assert time.monotonic() - start < 60  # a caller that cannot be interrupted waits for the wall-clock limit
        finally:
            signal.signal(signal.SIGALRM, before)
            os.kill(worker, signal.SIGCONT)
        assert pool.run("print(input())", stdin=b"7\n" + bytes(10 << 20)).stdout == "7\n"


def test_a_future_can_be_cancelled(pool: SandboxPool) -> None:
    future = pool.submit("while True: pass")
    until(lambda: pool.stats()["running"] == 1)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert pool.run("print(1)").ok


def test_a_worker_killed_in_a_run_is_replaced_and_the_run_retried() -> None:
    with SandboxPool(1, cpu_seconds=30) as pool:
        [worker] = pool.processes()
        future = pool.submit("x = 0\nfor i in range(6 * 10**6): x += i\nprint(x)")  # a second: it is killed in time
        until(lambda: pool.stats()["running"] == 1)
        time.sleep(0.05)
        os.kill(worker, signal.SIGKILL)
        assert future.result().stdout == f"{6 * 10**6 * (6 * 10**6 - 1) // 2}\n"
        assert (pool.stats()["retried"], pool.stats()["workers_replaced"]) == (1, 1)
        assert worker not in pool.processes()
        assert not alive(worker)


def kill_until_done(pool: SandboxPool, future: "Future[Execution]") -> None:
    """Kills the pool's workers when they have a run: one that is killed before does not count."""
    while not future.done():
        if pool.stats()["running"]:
            for pid in pool.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def test_a_run_that_loses_its_worker_twice_is_a_crash() -> None:
    with SandboxPool(1, cpu_seconds=30) as pool:
        future = pool.submit("while True: pass")
        kill_until_done(pool, future)
        assert future.result().status is OutcomeStatus.CRASH
        assert pool.stats()["retried"] == 1
        assert pool.run("print(1)").ok


def test_a_worker_killed_while_idle_costs_no_run(pool: SandboxPool) -> None:
    for pid in pool.processes():
        os.kill(pid, signal.SIGKILL)
    outcomes = pool.run_batch(["print(1)"] * 20)
    assert all(outcome.ok for outcome in outcomes)
    assert pool.stats()["crash"] == 0
    assert len(pool.processes()) == 2


def cpu_seconds(process: int) -> float:
    return time.clock_gettime((~process << 3) | 2)


def stop(worker: int) -> None:
    os.kill(worker, signal.SIGSTOP)
    until(lambda: state_of(worker) == "T")


def test_a_stopped_worker_is_killed_at_the_deadline_and_its_run_repeated() -> None:
    with SandboxPool(1, cpu_seconds=0.5, wall_seconds=0.5) as pool:
        [worker] = pool.processes()
        stop(worker)
        assert pool.run("print(1)").stdout == "1\n"
        assert not alive(worker)
        assert pool.stats()["retried"] == 1


def test_a_worker_that_is_stopped_after_it_has_computed_is_a_timeout() -> None:
    with SandboxPool(1, cpu_seconds=1, wall_seconds=4) as pool:
        [worker] = pool.processes()
        used = cpu_seconds(worker)
        future = pool.submit("while True: pass")
        until(lambda: cpu_seconds(worker) > used + 0.2)
        stop(worker)
        assert future.result().status is OutcomeStatus.TIMEOUT
        assert pool.stats()["retried"] == 0


def test_a_crash_counts_the_cpu_time_of_a_worker_that_failed() -> None:
    """The first one computes a part of a session, and then has no memory for another guest to repeat its statements."""
    with SandboxPool(1, cpu_seconds=60, result_cache_bytes=0) as pool:
        [first] = pool.processes()
        session, before, used = pool.session(), cpu_seconds(first), 0.0
        with ThreadPoolExecutor(1) as executor:
            part = executor.submit(session.run, "x = 1\nfor i in range(2 * 10**7): pass\nprint('y' * 10**7)")
            until(lambda: pool.stats()["running"] == 1)
            resource.prlimit(first, resource.RLIMIT_AS, (1 << 20, 1 << 20))
            while pool.stats()["retried"] == 0:
                with suppress(OSError):  # it was replaced
                    used = cpu_seconds(first) - before
                time.sleep(0.001)
            until(lambda: pool.processes() not in ([], [first]))
            [second] = pool.processes()
            until(lambda: cpu_seconds(second) > 0.7 * used)  # it has started, and computes
            os.kill(second, signal.SIGKILL)
            outcome = part.result()
        assert outcome.status is OutcomeStatus.CRASH
        assert outcome.cpu_seconds > used


def test_closing_ends_queued_and_running_runs() -> None:
    pool = SandboxPool(1, cpu_seconds=600)
    workers = pool.processes()
    futures = [pool.submit("while True: pass") for _ in range(10)]
    until(lambda: pool.stats()["running"] == 1)
    pool.close()
    wait(futures, timeout=60)
    for future in futures:
        assert isinstance(future.exception(timeout=0), SandboxError)
    with pytest.raises(SandboxError, match="closed"):
        pool.run("print(1)")
    assert not any(alive(pid) for pid in workers)
    pool.close()


def test_a_forgotten_pool_leaves_no_process() -> None:
    before = descendants_of_this_process()
    pool = SandboxPool(1)
    future = pool.submit("while True: pass")
    workers = pool.processes()
    del pool
    gc.collect()
    assert isinstance(future.exception(timeout=60), SandboxError)
    assert not any(alive(pid) for pid in workers)
    assert descendants_of_this_process() <= before


def test_a_callback_may_use_the_pool(pool: SandboxPool) -> None:
    inner = []
    outer = pool.submit("print(1)")
    outer.add_done_callback(lambda _: inner.append(pool.submit("print(2)")))
    outer.result()
    until(lambda: bool(inner))
    assert inner[0].result().stdout == "2\n"


def test_two_pools_at_once(pool: SandboxPool) -> None:
    with SandboxPool(1) as other:
        futures = [p.submit(f"print({i})") for i in range(50) for p in (pool, other)]
        assert all(future.result().ok for future in futures)
        assert not set(pool.processes()) & set(other.processes())
    assert pool.run("print(1)").ok


PARENT = """
import os, sys, threading
from torl_sandbox import SandboxPool
pool = SandboxPool(2, cpu_seconds=600, wall_seconds=600)
print(*pool.processes(), flush=True)
future = pool.submit("while True: pass")
{ending}
"""


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        "sys.exit(0)",
        "raise KeyboardInterrupt",
        "pool.close()",
        "os.kill(os.getpid(), 15)",
    ],
)
def test_no_worker_outlives_its_parent(ending: str) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT.format(ending=ending)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    workers = [int(pid) for pid in parent.stdout.split()]
    assert len(workers) == 2
    until(lambda: not any(alive(pid) for pid in workers))


FORK = """
import os
from torl_sandbox import SandboxError
from torl_sandbox import SandboxPool
pool = SandboxPool(1)
child = os.fork()
if child == 0:
    # What asks without a right could wait for a lock that a thread of the parent held at the fork.
    questions = [pool.stats, pool.latency, pool.processes, pool.confinement, lambda: pool.reuses_guest]
    for ask in [lambda: pool.run("print(1)"), *questions]:
        try:
            ask()
        except SandboxError as error:
            if "forked" in str(error):
                continue
        os._exit(1)
    pool.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert pool.run("print(1)").ok
"""


def test_a_fork_has_no_pool_and_does_not_harm_its_parents() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=60)


def test_workers_hold_no_file_of_the_parents() -> None:
    secret = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        with SandboxPool(1) as other:
            [worker] = other.processes()
            held = [os.readlink(f"/proc/{worker}/fd/{fd}") for fd in os.listdir(f"/proc/{worker}/fd")]
    finally:
        os.close(secret)
    assert "/dev/zero" not in held
    assert len(held) < 12


def test_descriptors_and_processes_do_not_pile_up() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with SandboxPool(1):
        pass
    before, children = count(), descendants_of_this_process()
    for _ in range(5):
        with SandboxPool(1) as pool:
            os.kill(pool.processes()[0], signal.SIGKILL)
            assert pool.run("print(1)").ok
    assert count() <= before
    assert descendants_of_this_process() <= children


def test_results_delivered_while_many_wait_come_once(pool: SandboxPool) -> None:
    calls: list[int] = []
    futures = [pool.submit("print(1)") for _ in range(300)]
    for index, future in enumerate(futures):
        future.add_done_callback(lambda _, index=index: calls.append(index))
    wait(futures, timeout=60)
    assert sorted(calls) == list(range(300))


SOAK = ["print(1)"] * 95 + [
    "1 / 0",
    "import sympy\nprint(sympy.factorint(360))",
    "x = bytes(10**7)",
    "print('x' * 10**5)",
    "open('f', 'w').write('x' * 10**5)",
]


def held(pid: int | str) -> dict[str, int]:
    """Resources of a process: private memory in bytes, open descriptors, threads."""
    # Pages of files are all workers' together, and more of the image's are seen whenever the memory is verified.
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        _, resident, of_files, *_ = map(int, file.read().split())
    return {
        "bytes": (resident - of_files) * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
    }


@pytest.mark.parametrize("runs", [8_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_nothing_piles_up(runs: int) -> None:
    batch = SOAK * 20
    children = descendants_of_this_process()
    with SandboxPool(2, result_cache_bytes=0) as pool:
        for _ in range(4):
            pool.run_batch(batch)
        workers = pool.processes()
        before = [held(pid) for pid in ["self", *workers]]
        for _ in range(runs // len(batch)):
            pool.run_batch(batch)
        after = [held(pid) for pid in ["self", *workers]]
        assert pool.processes() == workers
        assert pool.stats()["ok"] + pool.stats()["error"] == runs + 4 * len(batch)
        assert descendants_of_this_process() - children == set(workers)
    print(before, after)
    for then, now in zip(before, after, strict=True):
        assert now["bytes"] - then["bytes"] < 8 << 20, (before, after)
        assert now["descriptors"] <= then["descriptors"]
        assert now["threads"] <= then["threads"]
    assert descendants_of_this_process() <= children


def test_deep_recursion_leaves_no_stack() -> None:
    deep = """import numpy
x = None
for _ in range(10**5):
    y = numpy.empty(1, dtype=object)
    y[0] = x
    x = y
del x, y
"""
    with SandboxPool(1) as pool:
        [worker] = pool.processes()
        pool.run_batch(["print(1)", "print(2)"])
        before = held(worker)["bytes"]
        assert pool.run(deep).status is OutcomeStatus.CRASH  # the whole native stack was in use: 128 MiB
        assert pool.run("print(3)").ok
        assert pool.processes() == [worker]
        assert held(worker)["bytes"] < before + (16 << 20)


def test_an_idle_worker_holds_no_files_and_no_input_of_its_last_run() -> None:
    large = 50 << 20
    with SandboxPool(1, files_bytes=2 * large, result_cache_bytes=0) as pool:
        [worker] = pool.processes()
        assert pool.run("print(1)").ok
        before = held(worker)["bytes"]
        for code, stdin in ((f"open('a', 'wb').write(bytes({large}))", ""), ("print(1)", "x" * large)):
            assert pool.run(code, stdin=stdin, return_files=True).ok
            until(lambda: held(worker)["bytes"] < before + large // 2, seconds=10)
        assert pool.processes() == [worker]


@contextmanager
def timer(first: float, interval: float, handler: Callable[..., None]) -> Iterator[None]:
    """SIGALRM after some seconds, and then at each interval."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupt(*_: object) -> None:
    raise InterruptedError


def test_a_signal_interrupts_a_batch_while_results_arrive(pool: SandboxPool) -> None:
    codes = [f"print({i})" for i in range(20_000)]
    pool.run("print(1)")
    with timer(0.3, 0, interrupt), pytest.raises(InterruptedError):
        pool.run_batch(codes)
    assert pool.stats()["ok"] < len(codes)
    until(lambda: pool.stats()["running"] == pool.stats()["queued"] == 0)


def test_signals_cost_no_worker() -> None:
    with SandboxPool(1, result_cache_bytes=0) as pool, timer(0.0005, 0.0005, lambda *_: None):
        for _ in range(1500):
            assert pool.run("print(1)").ok
        assert pool.stats()["workers_replaced"] == 0


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.005, 0.01, 0.1])
def test_closing_while_a_caller_waits_ends_its_run(delay: float) -> None:
    pool = SandboxPool(1, cpu_seconds=600)
    with ThreadPoolExecutor(1) as executor:
        run = executor.submit(pool.run, "while True: pass")
        until(lambda: pool.stats()["running"] == 1)
        time.sleep(delay)
        pool.close()
        assert isinstance(run.exception(timeout=60), SandboxError)
    assert (pool.stats()["running"], pool.stats()["queued"]) == (0, 0)


def little_memory(pid: int) -> tuple[int, int]:
    """Lowers the limit on a process's memory below its use; returns the limits before."""
    limits = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (50 << 20, limits[1]))
    return limits


def test_a_worker_without_memory_costs_no_run_and_shares_no_outcome() -> None:
    """The system refuses it memory that its limit allows: a new guest, then more of a kept one's."""
    with SandboxPool(2, result_cache_bytes=0, cpu_seconds=0.2) as pool:
        little_memory(pool.processes()[0])
        for _ in range(3):
            outcomes = pool.run_batch([f"x = {i}\nwhile True: pass" for i in range(4)])
            assert [outcome.status for outcome in outcomes] == [OutcomeStatus.TIMEOUT] * 4
        assert pool.stats()["retried"] == pool.stats()["workers_replaced"] == 1
    with SandboxPool(1) as pool:
        hungry = "x = bytearray(100 << 20)\nprint(len(x))"
        [worker] = pool.processes()
        limits = little_memory(worker)
        assert pool.run(hungry).status is OutcomeStatus.MEMORY
        resource.prlimit(worker, resource.RLIMIT_DATA, limits)
        assert pool.run(hungry).stdout == f"{100 << 20}\n"
        assert pool.stats()["shared"] == 0
