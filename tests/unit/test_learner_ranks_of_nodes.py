"""Ranks on the nodes of a cluster: who is blamed when one of them is lost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from torl.errors import LearnerDiedError, LearnerError
from torl.learner import ranks
from torl.learner.messages import Reply
from torl.learner.placed_ranks import orders
from torl.learner.ranks import RankGroup, RankProcess

BROKEN = Reply(error="RuntimeError", message="Connection closed by peer")


class Nodes:
    """Of ranks; nothing is left of them."""

    async def close(self) -> None:
        pass


@pytest_asyncio.fixture
async def group(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[RankGroup, list[Connection]]]:
    """Three ranks, and their ends of the connections."""
    monkeypatch.setattr(ranks, "_BLAME_SECONDS", 0.01)
    group = RankGroup(timeout_seconds=100.0)
    nodes: Any = Nodes()
    group.nodes = nodes
    ends = []
    for rank in range(3):
        ours, theirs = socket.socketpair()
        group.ranks.append(RankProcess(rank, Connection(ours.detach()), None, None))
        ends.append(Connection(theirs.detach()))
    yield group, ends
    await group.kill()


async def test_a_node_that_is_found_lost_late_is_the_cause_of_what_the_other_ranks_say(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    asked = asyncio.create_task(of_ranks.call_all("update"))
    for end in ends[:2]:
        end.send(BROKEN)
    await asyncio.wait([asked], timeout=0.2)
    of_ranks.ranks[2].lose()
    with pytest.raises(LearnerDiedError, match="learner rank 2 closed its connection"):
        await asked


async def test_where_all_ranks_say_that_a_collective_broke_nobody_is_waited_for(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    asked = asyncio.create_task(of_ranks.call_all("update"))
    for end in ends:
        end.send(BROKEN)
    with pytest.raises(LearnerError, match="raised RuntimeError: Connection closed by peer") as raised:
        await asked
    assert not isinstance(raised.value, LearnerDiedError)


async def test_a_rank_that_says_what_is_wrong_with_itself_is_the_cause(
    group: tuple[RankGroup, list[Connection]],
) -> None:
    of_ranks, ends = group
    asked = asyncio.create_task(of_ranks.call_all("update"))
    ends[0].send(BROKEN)
    ends[1].send(Reply(error="LearnerError", message="the loss is not finite"))
    with pytest.raises(LearnerError, match=r"^the loss is not finite$"):
        await asked


def test_ranks_are_told_who_is_beside_them(tmp_path: Path) -> None:
    told = orders([0, 0, 1, 1], ["a", "b", "a", "c"], tmp_path)
    assert [(order.rank, order.local_rank, order.local_world_size) for order in told] == [
        (0, 0, 2), (1, 1, 2), (2, 0, 2), (3, 1, 2),
    ]  # fmt: skip
    assert [order.environment()["CUDA_VISIBLE_DEVICES"] for order in told] == ["a,b", "a,b", "a,c", "a,c"]
    assert {order.environment()["WORLD_SIZE"] for order in told} == {"4"}
