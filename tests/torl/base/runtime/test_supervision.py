"""The ends of an asynchronous program: each with its exit status, and its parts closed on the way out."""

import asyncio
import signal
import subprocess
import sys
import time
from typing import NoReturn

import pytest

from torl.base.errors import EngineError, SandboxError
from torl.base.runtime.processes.supervision import run_until_done, run_with_watchers


def test_work_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    assert run_until_done(work()) == 0
    assert capsys.readouterr().err == ""


def test_expected_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def alone() -> None:
        raise EngineError("the engine died")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(alone())

    assert run_until_done(alone()) == 1
    assert run_until_done(together()) == 1
    assert capsys.readouterr().err == "error: the engine died\n" * 2


def test_defects_keep_their_traceback() -> None:
    async def work() -> None:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        run_until_done(work())


PROGRAM = """
import asyncio, sys
from torl.base.runtime.processes.supervision import run_until_done

async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.3)
        print("closed", flush=True)

sys.exit(run_until_done(work()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_close_the_parts(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)  # an impatient second one does not skip the closing
    output, errors = process.communicate(timeout=60)
    assert output == "closed\n"
    assert errors == f"stopped by {number.name}\n"
    assert process.returncode == 128 + number


async def test_a_watcher_ends_the_work() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def watcher() -> NoReturn:
        await asyncio.sleep(0.01)
        raise SandboxError("the pool is dead")

    with pytest.raises(SandboxError, match="the pool is dead"):
        await run_with_watchers(work(), watcher())
    assert cancelled.is_set()


async def test_watchers_end_with_the_work() -> None:
    ended = asyncio.Event()

    async def work() -> int:
        await asyncio.sleep(0.01)
        return 7

    async def watcher() -> NoReturn:
        try:
            while True:
                await asyncio.sleep(60)
        finally:
            ended.set()

    assert await run_with_watchers(work(), watcher()) == 7
    assert ended.is_set()


async def test_the_works_own_error_comes_through() -> None:
    async def work() -> None:
        raise EngineError("mine")

    async def watcher() -> NoReturn:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(EngineError, match="mine"):
        await run_with_watchers(work(), watcher())
