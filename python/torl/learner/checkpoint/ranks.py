"""Checkpoints of a whole learner: every rank writes its part into one directory, or reads it back. No torch."""

import asyncio
from pathlib import Path
from typing import Any

from torl.errors import CheckpointError
from torl.learner.checkpoint.directory import LEARNER, open_checkpoint, read_controller_state, verify_checkpoint
from torl.learner.messages import LearnerSetup
from torl.learner.ranks import RankGroup


async def begin_checkpoint(
    group: RankGroup, setup: LearnerSetup, directory: Path, controller_state: dict[str, Any]
) -> "asyncio.Task[None]":
    """Write a checkpoint behind the training; see `Learner.begin_checkpoint`."""
    copied = asyncio.Event()
    writing = asyncio.create_task(_write(group, setup, directory, controller_state, copied))
    waiting = asyncio.create_task(copied.wait())
    try:
        await asyncio.wait([writing, waiting], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        writing.cancel()  # nobody is left to hear what becomes of it
        raise
    finally:
        waiting.cancel()
    return writing


async def load_ranks(group: RankGroup, setup: LearnerSetup, directory: Path, *, verified: bool) -> dict[str, Any]:
    """Put every rank back and return the controller's state; see `Learner.load_checkpoint`."""
    written = await asyncio.to_thread(verify_checkpoint, directory, hashes=not verified)
    if written != (own := _facts(setup)):
        raise CheckpointError(f"checkpoint {directory} was written with {written}; this learner has {own}")
    await group.call_all("load_checkpoint", directory=directory / LEARNER)
    return read_controller_state(directory)


async def _write(
    group: RankGroup, setup: LearnerSetup, directory: Path, controller_state: dict[str, Any], copied: asyncio.Event
) -> None:
    described: dict[str, dict[str, Any]] = {}
    with open_checkpoint(directory, controller_state, _facts(setup), described) as partial:
        (partial / LEARNER).mkdir()
        await group.call_all("save_checkpoint", directory=partial / LEARNER)
        copied.set()
        for shard in await group.shards_written():
            if shard.error is not None:
                raise CheckpointError(f"{shard.error}; the previous checkpoint is kept")
            described |= {f"{LEARNER}/{name}": file for name, file in shard.files.items()}


def _facts(setup: LearnerSetup) -> dict[str, Any]:
    """What has to fit between a checkpoint and the learner that loads it: not its ranks, nor its ZeRO stage."""
    facts: dict[str, Any] = {"dtype": setup.learner.dtype}
    return facts | {"critic": True} if setup.algorithm.needs_critic else facts
