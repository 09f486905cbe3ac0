"""Ctrl-C in the functions of torl: KeyboardInterrupt is raised once everything that was started has ended."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)
PROGRAM = """
import asyncio, pathlib, signal, sys, threading
from torl.api.event_loop import BackgroundLoop

signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the tests are a background job, which ignores it

async def until(file):
    while not pathlib.Path(file).exists():
        await asyncio.sleep(0.01)

async def work():
    print("working", flush=True)
    try:
        await until("finish")
    finally:
        print("closing", flush=True)
        await until("close")
        print("closed", flush=True)

try:
    with BackgroundLoop() as loop:
        loop.call(work(), cancellable={cancellable})
except KeyboardInterrupt:
    print("interrupted", *(thread.name for thread in threading.enumerate() if thread.name == "torl"))
"""


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program whose work waits for a file and then, also if it is cancelled, for another one."""
    text = PROGRAM.format(cancellable=request.param)
    with subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def expect(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdout is not None
    for line in lines:
        assert process.stdout.readline() == f"{line}\n"


@pytest.mark.parametrize("program", [True], indirect=True)
def test_interrupt_is_raised_after_the_cancelled_work_has_closed(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    expect(program, "working")
    program.send_signal(signal.SIGINT)
    expect(program, "closing")
    for _ in range(2):  # impatient ones do not skip the closing
        program.send_signal(signal.SIGINT)
        time.sleep(0.1)
    (tmp_path / "close").touch()
    expect(program, "closed", "interrupted")
    assert program.wait() == 0


@pytest.mark.parametrize("program", [False], indirect=True)
def test_interrupt_does_not_cancel_a_close(program: subprocess.Popen[str], tmp_path: Path) -> None:
    expect(program, "working")
    program.send_signal(signal.SIGINT)
    (tmp_path / "finish").touch()
    expect(program, "closing")
    (tmp_path / "close").touch()
    expect(program, "closed", "interrupted")
    assert program.wait() == 0
