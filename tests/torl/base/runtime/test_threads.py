"""Functions written elsewhere run in threads that no one waits for."""

import asyncio
import sys
import threading
from contextvars import ContextVar

import pytest

from torl.base.errors import ToolUnavailableError
from torl.base.runtime.processes import supervision
from torl.base.runtime.processes.supervision import run_in_thread

NAMED: ContextVar[str] = ContextVar("named")


async def test_calls_that_do_not_return_keep_no_other_waiting() -> None:
    let_go = threading.Event()
    held = [asyncio.ensure_future(run_in_thread(let_go.wait)) for _ in range(100)]
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    assert await asyncio.to_thread(divmod, 7, 2) == (3, 1)  # the pool is everybody's
    let_go.set()
    assert await asyncio.gather(*held) == [True] * 100


def test_a_call_that_never_returns_does_not_keep_the_process() -> None:
    async def given_up() -> None:
        call = asyncio.ensure_future(run_in_thread(threading.Event().wait))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(given_up())  # which waits for the threads of its pool
    ours = [thread for thread in threading.enumerate() if thread.name == "call of wait"]
    assert ours
    assert all(thread.daemon for thread in ours)


async def test_calls_without_an_end_are_refused_once_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MAX_ABANDONED", 3)
    monkeypatch.setattr(supervision, "_abandoned", [])
    release = threading.Event()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_thread(release.wait), 0.01)
    with pytest.raises(
        ToolUnavailableError, match="3 calls of functions still run after their timeouts, before the call of divmod"
    ):
        await run_in_thread(divmod, 7, 2)
    release.set()
    for thread in supervision._abandoned:
        thread.join()
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    assert supervision._abandoned == []


async def test_a_call_without_a_thread_has_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ToolUnavailableError, match="no thread for the call of divmod: can't start new thread"):
        await run_in_thread(divmod, 7, 2)


async def test_exception_is_passed_on_unless_a_coroutine_cannot_raise_it() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divmod, 1, 0)
    with pytest.raises(RuntimeError, match="StopIteration: "):
        await run_in_thread(next, iter(()))
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await run_in_thread(sys.exit, 3)


async def test_the_context_is_the_callers() -> None:
    NAMED.set("here")
    assert await run_in_thread(NAMED.get) == "here"
