"""Learner ranks that are forked from a process which has imported everything: a start takes a second instead of ten.

A rank is a separate process, and what it computes is what it always computes. How a run starts its ranks, and how
they end, is what `test_learner_processes.py` is about: there they are started as a run starts them.
"""

import multiprocessing
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torl.learner import launch
from torl.learner.rank_connection import RankProcess

_IMPORTED = ["torl.learner.worker", "deepspeed", "peft", "transformers.models.qwen2.modeling_qwen2"]
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}


@contextmanager
def forked() -> Iterator[None]:
    """Learners that are started in the block fork their ranks."""
    with patch.object(launch, "start_rank", _start_rank):
        yield


def call_forked(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a module's function, called in a separate process, which may fork ranks itself."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = _context().Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        value, error = ours.recv()
    except EOFError:
        value, error = None, f"{function.__name__} ended without a word"
    process.join()
    assert error is None, error
    return value


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        connection.send((function(*arguments), None))
    except Exception:
        connection.send((None, traceback.format_exc()))


class _Forked:
    """A process of multiprocessing as the controller takes it: as `Popen` has it."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked rank", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _start_rank(
    rank: int, world_size: int, *, log_directory: Path, environment: Mapping[str, str], threads: int
) -> RankProcess:
    """As `torl.learner.launch.start_rank`."""
    assert threads == 1
    log_directory.mkdir(parents=True, exist_ok=True)
    log = log_directory / f"learner_rank_{rank}.log"
    ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
    arguments = rank, world_size, theirs, str(log), dict(environment)
    process = _context().Process(target=_serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    forked: Any = _Forked(process)
    return RankProcess(rank, ours, forked, log)


def _context() -> Any:
    """The process that forks is started with the environment of a rank: later is too late for its libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with patch.dict(os.environ, {**_ENVIRONMENT, "PYTHONPATH": path}):
        forkserver.ensure_running()
    return context


def _serve(rank: int, world_size: int, connection: Connection, log: str, environment: dict[str, str]) -> None:
    from torl.base.runtime.processes.children import die_with_parent
    from torl.base.runtime.processes.hangs import enable_stack_dumps
    from torl.learner.worker import exit_rank, serve

    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    enable_stack_dumps()
    die_with_parent(os.getppid())
    exit_rank(serve(connection, rank, world_size))
