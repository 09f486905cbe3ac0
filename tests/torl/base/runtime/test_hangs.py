"""Finding what hangs, and what every process was doing then."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torl.base.errors import EngineHungError, HangError
from torl.base.runtime.processes import hangs
from torl.base.runtime.processes.hangs import PendingCalls, dump_own_stacks, dump_stacks

CHILD = """
import threading, time
from torl.base.runtime.processes.hangs import enable_stack_dumps
enable_stack_dumps()
def waits_forever():
    print("ready", flush=True)
    threading.Event().wait()
waits_forever()
"""
STANDING_STILL = """
import asyncio, sys, time
from pathlib import Path
from torl.base.runtime.processes.hangs import watch_event_loop

async def an_endless_episode():
    await asyncio.sleep(1000)

async def main():
    async with watch_event_loop(Path(sys.argv[1]), 2.0, "rollout.stall_timeout_seconds"):
        episodes = [asyncio.create_task(an_endless_episode()) for _ in range(7)]
        await asyncio.sleep(3)  # it turns: nothing happens
        print("turned", flush=True)
        time.sleep(1000)

asyncio.run(main())
"""


def start(program: str, *arguments: str, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=file, stderr=file)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_processes_write_stacks_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    children = [start(CHILD, log=log), start(CHILD, log=log)]
    stranger = start("print('ready', flush=True); import time; time.sleep(1000)", log=other)
    try:
        wait_for(other, "ready")
        deadline = time.monotonic() + 60
        while log.read_text().count("ready") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pids = [child.pid for child in children]
        # A process without a handler would be ended by the signal; a process that exited cannot answer.
        assert dump_stacks({log: pids, other: [stranger.pid, 2**22 + 1]}) == [stranger.pid, 2**22 + 1]
        assert log.read_text().count("in waits_forever") == 2
        assert [child.poll() for child in [*children, stranger]] == [None, None, None]
        os.kill(pids[1], signal.SIGSTOP)
        monkeypatch.setattr(hangs, "_RESPONSE_SECONDS", 0.5)
        assert dump_stacks({log: pids}) == [pids[1]]
        assert log.read_text().count("in waits_forever") == 3
    finally:
        for child in [*children, stranger]:
            child.kill()
            child.wait()


def test_blocked_event_loop_exits_with_stack_dumps(tmp_path: Path) -> None:
    log, output = tmp_path / "logs" / "controller.log", tmp_path / "output"
    assert start(STANDING_STILL, str(log), log=output).wait(60) == 1
    assert output.read_text().startswith("turned\n")  # not before
    assert (
        "error: the controller's event loop was blocked for 2 s (rollout.stall_timeout_seconds)" in output.read_text()
    )
    assert "in main" in log.read_text()
    assert "7 tasks:" in log.read_text()
    assert "in an_endless_episode" in log.read_text()


async def test_a_call_that_gives_no_answer_is_named(tmp_path: Path) -> None:
    calls = PendingCalls()
    watch = calls.watch(0.3, "rollout.stall_timeout_seconds")
    text = r"the tool 'mine' did not respond within 0.3 s \(rollout.stall_timeout_seconds\)"
    with pytest.raises(HangError, match=text), calls.open("the tool 'mine'"):
        await asyncio.wait_for(watch, 60)


async def test_calls_that_are_answered_are_not_added_up() -> None:
    calls = PendingCalls()
    watch = asyncio.create_task(calls.watch(1.0, "here"))
    for _ in range(8):
        with calls.open("the reward"):
            await asyncio.sleep(0.25)
    assert not watch.done()
    watch.cancel()


async def test_calls_that_wait_for_each_other_are_no_hang() -> None:
    calls, slots, answered = PendingCalls(), asyncio.Semaphore(1), list[bool]()

    async def queued() -> None:
        with calls.open("the tool 'mine'"):
            async with slots:
                await asyncio.sleep(0.25)
                answered.append(True)

    watch = asyncio.create_task(calls.watch(1.0, "here"))
    await asyncio.gather(*(queued() for _ in range(8)))  # the last takes two seconds
    assert (len(answered), watch.done()) == (8, False)
    watch.cancel()


@pytest.mark.parametrize(("component", "seconds"), [("the tool 'other'", 0.0), ("the tool 'mine'", 1000.0)])
async def test_other_components_and_cancelled_calls_hide_no_hang(component: str, seconds: float) -> None:
    calls = PendingCalls()

    async def made() -> None:
        with calls.open(component):
            await asyncio.sleep(seconds)

    async def others() -> None:
        while True:
            call = asyncio.create_task(made())
            await asyncio.sleep(0.02)
            call.cancel()

    busy = asyncio.create_task(others())
    with pytest.raises(HangError, match="the tool 'mine' did not respond"), calls.open("the tool 'mine'"):
        await asyncio.wait_for(calls.watch(0.3, "here"), 60)
    busy.cancel()


async def test_failed_call_is_an_answer() -> None:
    calls = PendingCalls()
    watch = asyncio.create_task(calls.watch(0.4, "here"))
    with calls.open("the environment"):
        for _ in range(8):
            await asyncio.sleep(0.1)
            with pytest.raises(ZeroDivisionError), calls.open("the environment"):
                raise ZeroDivisionError
    assert not watch.done()
    watch.cancel()


async def test_tasks_are_written_with_where_they_wait(tmp_path: Path) -> None:
    async def waits_in_here() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_in_here())
    await asyncio.sleep(0)
    dump_own_stacks(tmp_path / "log", asyncio.get_running_loop())
    written = (tmp_path / "log").read_text()
    assert "1 tasks:\n" in written
    assert "in waits_in_here" in written
    task.cancel()


def test_a_hang_is_an_error_of_its_part() -> None:
    assert isinstance(EngineHungError("the engine hung"), HangError)
