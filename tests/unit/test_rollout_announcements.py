"""News of blocks: delivered where somebody waits, never in anybody's way."""

import asyncio
import os
from pathlib import Path

from torl.rollout.announcements import BlockAnnouncer, BlockListener


async def test_blocks_reach_who_waits_for_their_turn() -> None:
    listener = BlockListener()
    path = listener.open()
    assert os.stat(Path(path).parent).st_mode & 0o077 == 0
    found: list[str] = []
    listener.expect("a", found.append)
    announcer = BlockAnnouncer(path)
    announcer.send("a", "print('é')\n")
    announcer.send("b", "lost")
    announcer.send("a", "2")
    while len(found) < 2:
        await asyncio.sleep(0.001)
    listener.forget("a")
    last = asyncio.Event()
    listener.expect("c", lambda _: last.set())
    announcer.send("a", "too late")
    announcer.send("c", "the last word")  # what was sent before it has arrived before it
    await last.wait()
    assert found == ["print('é')\n", "2"]
    listener.close()
    listener.close()
    assert not Path(path).parent.exists()
    announcer.send("a", "nobody is there")


async def test_a_listener_that_is_behind_holds_up_nobody() -> None:
    listener = BlockListener()
    announcer = BlockAnnouncer(listener.open())
    for _ in range(10_000):
        announcer.send("a", "x" * 1000)
    announcer.send("a", "x" * (10 << 20))
    listener.close()
