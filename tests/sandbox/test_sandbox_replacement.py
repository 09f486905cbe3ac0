"""Workers that cannot be started: killed as they start, or a system that has no more to give for a while."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from test_sandbox_pool import alive, descendants_of_this_process, interrupt, timer, until
from torl_sandbox import Execution, OutcomeStatus, SandboxError, SandboxPool


def kill(pid: int) -> None:
    """Kills a process and waits for its end, with all threads: the last of them closes its socket."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid) and threads_of(pid) <= 1)


def is_sandbox_worker(pid: int) -> bool:
    """Whether a process is a sandbox's worker; earlier tests may have left threads that start other processes."""
    try:
        return b"serve_sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return 0


@contextmanager
def descriptors_withheld() -> Iterator[None]:
    """No descriptor can be opened in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_workers_killed_while_they_start_cost_no_run() -> None:
    before = descendants_of_this_process()
    with SandboxPool(1) as pool:
        [starting] = pool.processes()
        kill(starting)
        future = pool.submit("print(1)")
        for count in range(1, 4):
            until(lambda dead=[starting]: pool.processes() not in ([], dead))  # type: ignore[misc]
            [starting] = pool.processes()
            others = descendants_of_this_process() - before - {starting}
            assert not [pid for pid in others if alive(pid) and is_sandbox_worker(pid)]
            kill(starting)
            until(lambda count=count: pool.stats()["failed_starts"] == count)  # type: ignore[misc]
        assert future.result(timeout=60).stdout == "1\n"
        assert (pool.stats()["retried"], pool.stats()["workers_replaced"]) == (0, 1)


def test_one_killed_while_the_pool_is_made_is_started_again() -> None:
    program = (
        "import threading, os\nfrom torl_sandbox import SandboxPool\npools = []\n"
        "thread = threading.Thread(target=lambda: pools.append(SandboxPool(1)))\nthread.start()\n"
        "def children():\n"
        "    tasks = os.listdir('/proc/self/task')\n"
        "    return [int(pid) for task in tasks for pid in open(f'/proc/self/task/{task}/children').read().split()]\n"
        "while not children(): pass\n"
        "os.kill(children()[0], 9)\nthread.join()\nprint(pools[0].run('print(1)').stdout, pools[0].stats()['failed_starts'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1\n 1\n", done.stderr


def test_descriptors_that_are_missing_for_a_while_cost_no_run() -> None:
    with SandboxPool(2, result_cache_bytes=0) as pool:
        for pid in pool.processes():
            kill(pid)
        with descriptors_withheld():
            futures = [pool.submit(f"print({number})") for number in range(10)]
            until(lambda: pool.stats()["failed_starts"] >= 4)
            assert not any(future.done() for future in futures)
        assert [future.result(timeout=60).stdout for future in futures] == [f"{number}\n" for number in range(10)]


def test_a_run_that_lost_its_worker_goes_to_another_that_is_free() -> None:
    with SandboxPool(2, cpu_seconds=30) as pool:
        future = pool.submit("x = 0\nfor i in range(4 * 10**6): x += i\nprint(x)")
        until(lambda: pool.stats()["running"] == 1)
        time.sleep(0.05)
        with descriptors_withheld():  # no worker can be replaced
            busy = max(pool.processes(), key=lambda pid: time.clock_gettime((~pid << 3) | 2))
            os.kill(busy, signal.SIGKILL)
            assert future.result(timeout=60).ok
        assert pool.stats()["retried"] == 1


@pytest.mark.slow  # the pauses between the tries: 40 s
def test_permanent_failure_closes_the_pool_and_is_reported() -> None:
    with SandboxPool(1) as pool:
        kill(pool.processes()[0])
        with descriptors_withheld():  # before anything asks for another worker
            error = pool.submit("print(1)").exception(timeout=120)
        assert isinstance(error, SandboxError)
        assert str(error).startswith("no sandbox worker could be started in 15 tries over 4")
        assert "Too many open files" in str(error)
        with pytest.raises(SandboxError, match="15 tries"):
            pool.run("print(1)")


def test_closing_does_not_wait_for_a_worker_that_starts() -> None:
    pool = SandboxPool(1)
    kill(pool.processes()[0])
    future = pool.submit("print(1)")
    until(lambda: pool.stats()["workers_replaced"] == 1 and bool(pool.processes()))
    os.kill(pool.processes()[0], signal.SIGSTOP)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 30  # a start may take a minute
    assert isinstance(future.exception(timeout=0), SandboxError)


@pytest.mark.parametrize("kills", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_children_killed_at_random_lose_no_run(kills: int) -> None:
    """Any child of this process: those that run, those that wait, and after every second kill the one that starts."""
    random, others = Random(0), descendants_of_this_process()
    starting = 0

    def children() -> set[int]:
        return {pid for pid in descendants_of_this_process() - others if alive(pid)}

    with SandboxPool(2, cpu_seconds=30, result_cache_bytes=0) as pool:

        def submitted() -> list[Future[Execution]]:
            return [pool.submit(f"print(sum(range({i} * 1000)))") for i in range(20)]

        for count in range(0, kills, 2):
            futures = submitted()
            time.sleep(random.random() * 0.1)
            until(lambda: bool(children()))
            seen, failed = children(), pool.stats()["failed_starts"]
            kill(random.choice(sorted(seen)))
            futures += submitted()  # one that was idle is replaced when it is needed
            until(lambda seen=seen: bool(children() - seen))  # type: ignore[misc]
            kill(min(children() - seen))
            outcomes = [future.result(timeout=60) for future in futures]
            assert [outcome.stdout for outcome in outcomes] == [f"{sum(range(i * 1000))}\n" for i in range(20)] * 2, (
                count
            )
            starting += pool.stats()["failed_starts"] > failed
        assert pool.stats()["crash"] == 0
        until(lambda: len(pool.processes()) == 2)
    assert starting >= kills / 4, "hardly any was starting"


def test_signals_that_the_caller_blocks_reach_the_worker() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with SandboxPool(1, cpu_seconds=0.5) as pool:
            outcome = pool.run("print('begun', flush=True)\nwhile True: pass")
            assert (outcome.status, outcome.stdout) == (OutcomeStatus.TIMEOUT, "begun\n")
            assert pool.stats()["workers_replaced"] == 0
            # A null pointer, where the guest runs out of its stack, is a fault too.
            assert pool.run("print(1)").ok
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_worker_only() -> Iterator[None]:
    """Every worker of this process but the first is killed as it starts."""
    before, ended = descendants_of_this_process(), threading.Event()

    def end_the_others() -> None:
        first = None
        while not ended.wait(0.02):
            workers = [pid for pid in descendants_of_this_process() - before if alive(pid) and is_sandbox_worker(pid)]
            if len(workers) > 1:
                first = first or min(workers)
                for pid in set(workers) - {first}:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=end_the_others)
    killer.start()
    try:
        yield
    finally:
        ended.set()
        killer.join()


def test_signal_interrupts_the_start_of_a_pool() -> None:
    before = descendants_of_this_process()
    started = time.monotonic()
    with one_worker_only(), timer(2, 0, interrupt), pytest.raises(InterruptedError):
        SandboxPool(2)
    assert time.monotonic() - started < 20  # it gives up after 40
    assert not [pid for pid in descendants_of_this_process() - before if alive(pid)]


@pytest.mark.slow  # the pauses between the tries: 40 s
def test_pool_with_a_worker_that_never_starts_is_reported() -> None:
    with one_worker_only(), pytest.raises(SandboxError, match=r"in 15 tries over \d\d s"):
        SandboxPool(2)
