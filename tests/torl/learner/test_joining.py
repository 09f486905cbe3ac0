"""Ranks started elsewhere find the controller, and other connections are refused."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Connection

import pytest

from torl.base.errors import LearnerError
from torl.learner.rank_connection import RankListener, connect_to_controller

HERE = "127.0.0.1"


def in_background(function: Callable[[], dict[int, Connection]]) -> "Future[dict[int, Connection]]":
    """A future of a thread that the end of the tests does not wait for."""
    result: Future[dict[int, Connection]] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def test_a_rank_is_let_in_while_a_stranger_says_nothing() -> None:
    with RankListener(HERE) as listener, socket.create_connection((HERE, listener.address.port)):
        accepting = in_background(lambda: listener.accept([0, 1]))
        ends = {rank: connect_to_controller(listener.address, rank) for rank in (1, 0)}
        connections = accepting.result(timeout=60)
    for rank, end in ends.items():
        end.send(f"rank {rank}")
    assert {rank: connection.recv() for rank, connection in connections.items()} == {0: "rank 0", 1: "rank 1"}


def test_connection_without_secret_is_not_a_rank() -> None:
    with RankListener(HERE) as listener:
        accepting = in_background(lambda: listener.accept([0]))
        with pytest.raises(LearnerError, match=r"rank 0 found no controller at 127\.0\.0\.1:"):
            connect_to_controller(replace(listener.address, key="00" * 32), 0)
        assert not accepting.done()
        listener.cancel()
        with pytest.raises(LearnerError, match=r"the learner ranks \[0\] did not connect"):
            accepting.result(timeout=60)
