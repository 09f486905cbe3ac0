"""A checkpoint that ranks write during training."""

import asyncio
import gc
from pathlib import Path
from typing import Any, cast

import pytest

from torl.base.errors import LearnerError
from torl.learner.checkpoint.ranks import begin_checkpoint
from torl.learner.messages import LearnerSetup, RankRequest
from torl.learner.ranks import RankGroup
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config


class EndedRanks:
    """Ranks that receive a request to copy, and are ended before they have."""

    def __init__(self) -> None:
        self.told, self.ended = asyncio.Event(), asyncio.Event()

    async def call_all(self, _request: RankRequest) -> None:
        self.told.set()
        await self.ended.wait()
        raise LearnerError("the ranks were ended")


def test_abandoned_checkpoint_ends_silently(tmp_path: Path) -> None:
    """As when a run is stopped by a signal while its ranks copy their state."""
    setup = LearnerSetup.from_config(load_config(TrainConfig, find_config("demo"), {}))
    assert asyncio.run(said_of_a_begin_that_is_cancelled(setup, tmp_path / "step_000001")) == []
    assert list(tmp_path.iterdir()) == []


async def said_of_a_begin_that_is_cancelled(setup: LearnerSetup, directory: Path) -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    ranks = EndedRanks()
    started = asyncio.create_task(begin_checkpoint(cast(RankGroup, ranks), setup, directory, {}))
    await ranks.told.wait()
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    ranks.ended.set()
    async with asyncio.timeout(30):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
    gc.collect()
    return contexts
