"""Distinguishing an engine that hangs from one that is slow or idle, and from a slow controller."""

import asyncio
import logging
import time

import pytest

from torl.components.engine.vllm.processes import StallWatch


async def test_an_engine_that_is_silent_for_the_limit_has_stalled(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch(0.4)
    with caplog.at_level(logging.WARNING):
        text = await asyncio.wait_for(watch.wait(lambda: "3 requests are open"), 20)
    assert text.startswith("no token came for")
    assert text.endswith("although 3 requests are open")
    (warning,) = caplog.records
    assert "stopped after 0.4 s" in warning.getMessage()


async def test_one_that_computes_now_and_then_has_not(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch(4.0)
    waiting = asyncio.ensure_future(watch.wait(lambda: "1 request is open"))
    for _ in range(3):
        await asyncio.sleep(1.0)
        watch.step()
    assert [record for record in caplog.records if "stopped after" in record.getMessage()]  # slow enough for a warning
    await asyncio.sleep(2.0)
    assert not waiting.done()
    waiting.cancel()


async def test_an_idle_engine_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Each request restarts the timeout."""
    watch = StallWatch(1.0)
    awaited: str | None = "1 request is open"
    waiting = asyncio.ensure_future(watch.wait(lambda: awaited))
    for number in range(6):
        awaited = "1 request is open" if number % 2 else None
        await asyncio.sleep(0.4)
    assert not waiting.done()
    waiting.cancel()


async def test_busy_controller_raises_no_stall() -> None:
    watch = StallWatch(1.0)
    waiting = asyncio.ensure_future(watch.wait(lambda: "1 request is open"))
    await asyncio.sleep(0.1)
    time.sleep(3)  # the event loop receives nothing in this time
    await asyncio.sleep(0.1)
    assert not waiting.done()
    waiting.cancel()
