"""The timeout of a rank's command, which each computed row restarts."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from torl.base.errors import LearnerError, LearnerHungError
from torl.base.types import TrainingSample
from torl.learner.batch import pack_batch
from torl.learner.messages import Annotate, RankReply, RowComputed, ShardWritten
from torl.learner.rank_connection import RankProcess
from torl.learner.ranks import RankGroup
from torl.learner.update import evaluate_rows

TIMEOUT_SECONDS = 2.0
Group = tuple[RankGroup, list[Connection]]


@pytest_asyncio.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """Two ranks without a process, and their ends of the connections."""
    group = RankGroup(TIMEOUT_SECONDS)
    ends = []
    for rank in range(2):
        ours, theirs = socket.socketpair()
        group.ranks.append(RankProcess(rank, Connection(ours.detach()), None, tmp_path / f"rank_{rank}.log"))
        ends.append(Connection(theirs.detach()))
    yield group, ends
    await group.kill()


@contextmanager
def noted_deadlines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Note the times to which timeouts are moved."""
    deadlines: list[float] = []
    reschedule = asyncio.Timeout.reschedule

    def note(timeout: asyncio.Timeout, when: float | None) -> None:
        assert when is not None
        deadlines.append(when)
        reschedule(timeout, when)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.Timeout, "reschedule", note)
        yield deadlines


async def test_each_row_of_any_rank_restarts_the_timeout(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, ends = group
    loop = asyncio.get_running_loop()
    with noted_deadlines(monkeypatch) as deadlines:
        call = asyncio.create_task(ranks.call([Annotate((), ("old_logprobs",))] * 2))
        for row in range(4):
            sent = loop.time()
            ends[row % 2].send(RowComputed())
            while len(deadlines) < row + 2:  # the first is that of the command
                await asyncio.sleep(0)
            assert deadlines[-1] >= sent + TIMEOUT_SECONDS
        for end in ends:
            end.send(RankReply("value"))
        assert await call == ["value", "value"]
    ends[0].send(RowComputed())  # late: no command waits for it
    ends[0].send(RankReply("next"))
    ends[1].send(RankReply("next"))
    assert await ranks.call([Annotate((), ())] * 2) == ["next", "next"]


async def test_ranks_without_progress_are_ended(group: Group) -> None:
    ranks, ends = group
    ranks._timeout_seconds = 0.05
    call = asyncio.create_task(ranks.call([Annotate((), ())] * 2))
    ends[0].send(RowComputed())
    with pytest.raises(LearnerHungError, match=r"did not finish 'annotate' within 0\.05 s"):
        await call


async def test_each_written_part_of_a_checkpoint_restarts_the_timeout(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, ends = group
    loop = asyncio.get_running_loop()
    with noted_deadlines(monkeypatch) as deadlines:
        written = asyncio.create_task(ranks.shards_written())
        sent = loop.time()
        ends[1].send(ShardWritten({"second": {}}))
        while len(deadlines) < 2 and not written.done():  # the first is that of the start
            await asyncio.sleep(0)
        assert deadlines[-1] >= sent + TIMEOUT_SECONDS
        ends[0].send(ShardWritten({"first": {}}))
        assert await written == [ShardWritten({"first": {}}), ShardWritten({"second": {}})]


async def test_missing_part_of_a_checkpoint_names_the_setting(group: Group) -> None:
    ranks, ends = group
    ranks._timeout_seconds = 0.05
    ends[0].send(ShardWritten({}))
    with pytest.raises(LearnerError, match=r"within 0\.05 s \(learner\.timeout_seconds\)"):
        await ranks.shards_written()


def test_a_row_is_reported_once_its_values_are_there() -> None:
    class Engine(torch.nn.Module):
        pass

    mask = np.array([False, True, True])
    sample = TrainingSample(np.arange(1, 4, dtype=np.int32), mask, -mask.astype(np.float32))
    rows = pack_batch([sample] * 3, max_row_tokens=3, ranks=1).rows[0]
    events: list[str] = []

    def compute(row: Any) -> torch.Tensor:
        events.append("computed")
        return torch.ones(len(row.target_K))

    values = evaluate_rows(Engine(), rows, torch.device("cpu"), compute, lambda: events.append("reported"))
    assert events == ["computed", "reported"] * 3
    assert [len(value) for value in values] == [2, 2, 2]
