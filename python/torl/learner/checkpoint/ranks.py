"""Checkpoints of all ranks: each writes its part into a common directory, or restores it. No torch."""

import asyncio
from pathlib import Path
from typing import Any

from torl.base.errors import CheckpointError
from torl.learner.checkpoint.directory import LEARNER, open_checkpoint, read_controller_state, verify_checkpoint
from torl.learner.messages import LearnerSetup, LoadCheckpoint, SaveCheckpoint
from torl.learner.ranks import RankGroup


async def begin_checkpoint(
    group: RankGroup, setup: LearnerSetup, directory: Path, controller_state: dict[str, Any]
) -> "asyncio.Task[None]":
    """Start writing a checkpoint in the background; see `Learner.begin_checkpoint`."""
    copied = asyncio.Event()
    writing = asyncio.create_task(_write(group, setup, directory, controller_state, copied))
    waiting = asyncio.create_task(copied.wait())
    try:
        await asyncio.wait([writing, waiting], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        writing.cancel()  # no caller will receive its result
        raise
    finally:
        waiting.cancel()
    return writing


async def load_ranks(group: RankGroup, setup: LearnerSetup, directory: Path, *, verified: bool) -> dict[str, Any]:
    """Restore the state of every rank and return the controller's state; see `Learner.load_checkpoint`."""
    written = await asyncio.to_thread(verify_checkpoint, directory, hashes=not verified)
    if written != (expected := _compatibility(setup)):
        raise CheckpointError(f"checkpoint {directory} was written with {written}; this learner has {expected}")
    await group.call_all(LoadCheckpoint(directory / LEARNER))
    return read_controller_state(directory)


async def _write(
    group: RankGroup, setup: LearnerSetup, directory: Path, controller_state: dict[str, Any], copied: asyncio.Event
) -> None:
    file_entries: dict[str, dict[str, Any]] = {}
    with open_checkpoint(directory, controller_state, _compatibility(setup), file_entries) as partial:
        (partial / LEARNER).mkdir()
        await group.call_all(SaveCheckpoint(partial / LEARNER))
        copied.set()
        for shard in await group.shards_written():
            if shard.error is not None:
                raise CheckpointError(f"{shard.error}; the previous checkpoint is kept")
            file_entries |= {f"{LEARNER}/{name}": entry for name, entry in shard.files.items()}


def _compatibility(setup: LearnerSetup) -> dict[str, Any]:
    """Return the properties that a checkpoint and a learner must share. Ranks and ZeRO stage may differ."""
    properties: dict[str, Any] = {"dtype": setup.learner.dtype}
    return properties | {"critic": True} if setup.algorithm.needs_critic else properties
