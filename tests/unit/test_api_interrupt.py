"""Ctrl-C in the functions of torl: KeyboardInterrupt is raised once everything that was started has ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = """
import asyncio, sys, threading
from torl.api.event_loop import BackgroundLoop

async def read():
    return await asyncio.to_thread(sys.stdin.readline)

async def work():
    print("working", flush=True)
    try:
        await read()
    finally:
        print("closing", flush=True)
        await read()
        print("closed", flush=True)

try:
    with BackgroundLoop() as loop:
        loop.call(work(), cancellable={cancellable})
except KeyboardInterrupt:
    print("interrupted", *(thread.name for thread in threading.enumerate() if thread.name == "torl"))
"""


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A program whose work waits for a line, and then, also if it is cancelled, for another one."""
    text = PROGRAM.format(cancellable=request.param)
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.parametrize("program", [True], indirect=True)
def test_interrupt_is_raised_after_the_cancelled_work_has_closed(program: subprocess.Popen[str]) -> None:
    expect(program, "working")
    os.kill(program.pid, signal.SIGINT)
    expect(program, "closing")
    for _ in range(2):  # impatient ones do not skip the closing
        os.kill(program.pid, signal.SIGINT)
    send(program, "for the thread of the cancelled read")
    send(program, "close")
    expect(program, "closed")
    expect(program, "interrupted")
    assert program.wait() == 0


@pytest.mark.parametrize("program", [False], indirect=True)
def test_interrupt_does_not_cancel_a_close(program: subprocess.Popen[str]) -> None:
    expect(program, "working")
    os.kill(program.pid, signal.SIGINT)
    send(program, "work")
    expect(program, "closing")
    send(program, "close")
    expect(program, "closed")
    expect(program, "interrupted")
    assert program.wait() == 0
