"""News of blocks and steps: delivered if a consumer waits, never blocking a producer."""

import asyncio
from pathlib import Path

import pytest

from torl._core import StopCondition, Vocabulary
from torl.base.types import SamplingParameters, TurnRequest
from torl.components.engine.vllm.messages import Announcer, Listener, decode_turn, encode_turn


async def test_blocks_reach_the_waiting_consumer(tmp_path: Path) -> None:
    steps: list[None] = []
    listener = Listener(lambda: steps.append(None))
    path = listener.open(tmp_path)
    found: list[str] = []
    listener.subscribe("a", found.append)
    announcer = Announcer(path)
    announcer.block("a", "print('é')\n")
    announcer.block("b", "lost")
    announcer.block("a", "2")
    while len(found) < 2:
        await asyncio.sleep(0.001)
    listener.unsubscribe("a")
    last = asyncio.Event()
    listener.subscribe("c", lambda _: last.set())
    announcer.block("a", "too late")
    announcer.block("c", "the last word")  # earlier messages have arrived before it
    await last.wait()
    assert found == ["print('é')\n", "2"]
    assert steps == []
    listener.close()
    listener.close()
    announcer.block("a", "nobody is there")


async def test_slow_listener_delays_no_other_listener(tmp_path: Path) -> None:
    listener = Listener(lambda: None)
    announcer = Announcer(listener.open(tmp_path))
    for _ in range(10_000):
        announcer.block("a", "x" * 1000)
    announcer.block("a", "x" * (10 << 20))
    listener.close()


async def test_many_steps_are_few_messages(tmp_path: Path) -> None:
    steps: list[None] = []
    listener = Listener(lambda: steps.append(None))
    announcer = Announcer(listener.open(tmp_path))
    for _ in range(1000):
        announcer.step()
    while not steps:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert len(steps) < 20
    listener.close()


@pytest.mark.parametrize(
    ("end", "reads", "is_message"),
    [
        (StopCondition.never(), False, False),
        (StopCondition.never().with_stops(["User:"]), True, False),
        (StopCondition.tagged(b"<tool_call>", b"</tool_call>"), True, True),
        (StopCondition.tagged(b"<code>", b"</code>", ends_turn=True), True, False),
        (StopCondition.block(), True, False),
    ],
)
def test_the_engine_reads_a_turn_in_which_it_has_something_to_find(
    end: StopCondition, reads: bool, is_message: bool
) -> None:
    request = TurnRequest("0/p/0/0", [], SamplingParameters(1), end)
    scanner, *rest = decode_turn(encode_turn(request), Vocabulary([b"a"]))
    assert (scanner is not None, rest) == (reads, ["0/p/0/0", is_message])
