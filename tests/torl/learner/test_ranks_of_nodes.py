"""Ranks on the nodes of a cluster: who is blamed when one of them is lost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from torl.base.errors import LearnerDiedError, LearnerError, WeightTransferError
from torl.components.weights.rendezvous import Rendezvous
from torl.learner import ranks
from torl.learner.launch import rank_specs
from torl.learner.messages import Onload, RankReply, SendWeights
from torl.learner.rank_connection import RankProcess
from torl.learner.ranks import RankGroup

BROKEN = RankReply(error="RuntimeError", message="Connection closed by peer")
SEND = SendWeights(Rendezvous("127.0.0.1", 0, 1), checksum=False)


class Nodes:
    """Processes of ranks; none of them is left."""

    async def close(self) -> None:
        pass


@pytest_asyncio.fixture
async def group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[tuple[RankGroup, list[Connection]]]:
    """Three ranks, and their ends of the connections."""
    monkeypatch.setattr(ranks, "CAUSE_SECONDS", 0.01)
    group = RankGroup(timeout_seconds=100.0)
    nodes: Any = Nodes()
    group.nodes = nodes
    ends = []
    for rank in range(3):
        ours, theirs = socket.socketpair()
        group.ranks.append(RankProcess(rank, Connection(ours.detach()), None, tmp_path / f"learner_rank_{rank}.log"))
        ends.append(Connection(theirs.detach()))
    yield group, ends
    await group.kill()


async def test_node_found_lost_late_is_the_cause_of_rank_errors(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    call = asyncio.create_task(of_ranks.call_all(Onload()))
    for end in ends[:2]:
        end.send(BROKEN)
    await asyncio.wait([call], timeout=0.2)
    of_ranks.ranks[2].mark_lost()
    with pytest.raises(LearnerDiedError, match="learner rank 2 closed its connection"):
        await call


async def test_failed_collective_on_all_ranks_ends_the_wait(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    call = asyncio.create_task(of_ranks.call_all(Onload()))
    for end in ends:
        end.send(BROKEN)
    with pytest.raises(LearnerError, match="raised RuntimeError: Connection closed by peer") as raised:
        await call
    assert not isinstance(raised.value, LearnerDiedError)


async def test_rank_that_reports_its_error_is_the_cause(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    call = asyncio.create_task(of_ranks.call_all(Onload()))
    ends[0].send(BROKEN)
    ends[1].send(RankReply(error="LearnerError", message="the loss is not finite"))
    with pytest.raises(LearnerError, match=r"^the loss is not finite$"):
        await call


async def test_cancelled_command_fails_its_caller(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    """As if an engine is lost while weights are sent: its error must appear, and the ranks raise no error."""
    of_ranks, _ = group
    watching = asyncio.create_task(of_ranks.watch())
    call = asyncio.create_task(of_ranks.call_all(SEND))
    await asyncio.wait([call], timeout=0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not (await asyncio.wait([watching], timeout=0.2))[0]
    with pytest.raises(LearnerError, match="failed before: 'send_weights' was interrupted"):
        await of_ranks.call_all(Onload())
    watching.cancel()


async def test_command_cancelled_by_lost_rank_reports_the_rank(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    """An engine that receives its weights may notice before the rank's node is known to be lost."""
    of_ranks, ends = group
    watching = asyncio.create_task(of_ranks.watch())
    call = asyncio.create_task(of_ranks.call_all(SEND))
    await asyncio.wait([call], timeout=0.1)
    ends[1].close()
    await asyncio.wait([asyncio.create_task(of_ranks.ranks[1].closed.wait())])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(LearnerDiedError, match="learner rank 1 closed its connection"):
        await watching


async def test_rank_watch_raises_the_error_of_the_rank(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    watching = asyncio.create_task(of_ranks.watch())
    call = asyncio.create_task(of_ranks.call_all(SEND))
    for end in ends:
        end.send(RankReply(error="WeightTransferError", message="a receiver is silent"))
    for raised in (call, watching):
        with pytest.raises(WeightTransferError, match="a receiver is silent"):
            await raised


def test_ranks_receive_their_local_neighbors(tmp_path: Path) -> None:
    specs = rank_specs([0, 0, 1, 1], ["a", "b", "a", "c"], tmp_path)
    assert [(order.rank, order.local_rank, order.local_world_size) for order in specs] == [
        (0, 0, 2), (1, 1, 2), (2, 0, 2), (3, 1, 2),
    ]  # fmt: skip
    assert [order.environment()["CUDA_VISIBLE_DEVICES"] for order in specs] == ["a,b", "a,b", "a,c", "a,c"]
    assert {order.environment()["WORLD_SIZE"] for order in specs} == {"4"}
