"""The rank processes seen from the controller: start them, talk to them, notice their death, end them. No torch.

Used from one event loop. A rank is a child process on a socket pair or, on a node of a cluster, a process that an agent
has started and that has connected to the controller.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from torl.errors import LearnerDiedError, LearnerError, LearnerHungError, TorlError
from torl.learner.messages import RankReply, RankRequest, RankSetup, ShardWritten
from torl.learner.rank_launchers import RankLaunchers
from torl.runtime.processes.children import describe_exit, first_line, log_tail
from torl.runtime.processes.stacks import dump_stacks

_EXIT_SECONDS = 30.0  # an orderly end of a rank takes less
_KILL_SECONDS = 10.0
_BLAME_SECONDS = 0.5  # when one rank fails others fail because of it: wait that long to find the first cause
_LOSS_SECONDS = 60.0  # and that long for a node to be found lost, where a collective broke and nobody says why
_COLLECTIVE = ("RuntimeError", "DistBackendError")  # what the *other* ranks see


class RankProcess:
    """One rank: its connection, its log file and, if the controller started it, its process."""

    def __init__(self, rank: int, connection: Connection, process: subprocess.Popen[bytes] | None, log: Path) -> None:
        self.rank = rank
        self.connection = connection
        self.process = process
        self.log = log
        self.replies: asyncio.Queue[RankReply | None] = asyncio.Queue()  # None: the connection is closed
        self.shards: asyncio.Queue[ShardWritten] = asyncio.Queue()  # said unasked, behind other commands
        self.closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._receive)
        self._listening = True

    def _receive(self) -> None:
        try:
            message: RankReply | ShardWritten = self.connection.recv()
            if isinstance(message, ShardWritten):
                self.shards.put_nowait(message)
            else:
                self.replies.put_nowait(message)
        except (EOFError, OSError):
            self.stop_listening()
            self.mark_lost()

    def mark_lost(self) -> None:
        """It has gone, or its machine has."""
        self.replies.put_nowait(None)
        self.closed.set()

    def stop_listening(self) -> None:
        """Take the connection out of the event loop."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(self.connection.fileno())
            self._listening = False

    def describe_death(self) -> str:
        """How the process ended, and the end of its log."""
        status = None
        if self.process is not None:
            try:
                status = self.process.wait(timeout=_BLAME_SECONDS)
            except subprocess.TimeoutExpired:
                status = None
        how = "closed its connection" if status is None else describe_exit(status)
        return f"learner rank {self.rank} {how}; end of {self.log}:\n{log_tail(self.log)}"


def start_rank(
    rank: int, world_size: int, *, log_directory: Path, environment: Mapping[str, str], threads: int
) -> RankProcess:
    """Start `python -m torl.learner.worker` in a session of its own, so that Ctrl-C reaches only the controller.

    Call it in the thread that lives as long as the controller: the rank is killed when that thread ends.
    """
    log_directory.mkdir(parents=True, exist_ok=True)
    log = log_directory / f"learner_rank_{rank}.log"
    ours, theirs = socket.socketpair()
    with ours, theirs, log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "torl.learner.worker"),
                *("--rank", str(rank), "--world-size", str(world_size)),
                *("--connection", str(theirs.fileno()), "--parent", str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            # A rank finds what the controller finds: the modules of a user's own estimators and losses.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                **environment,
                "OMP_NUM_THREADS": str(threads),
            },
        )
        return RankProcess(rank, Connection(ours.detach()), process, log)


class RankGroup:
    """All ranks; the only thing that talks to them. After the first failure every call raises it again."""

    def __init__(self, timeout_seconds: float) -> None:
        self.ranks: list[RankProcess] = []  # in order; filled by whoever starts them
        self.on_one_machine = True
        self.host = "127.0.0.1"  # where rank 0 is found by the others and by engines
        self.nodes: RankLaunchers | None = None  # where the ranks are, if they are on the nodes of a cluster
        self._timeout_seconds = timeout_seconds
        self._failure: TorlError | None = None
        self._ended_on_purpose = False  # in good order, or by whoever cancelled a command and knows why
        self._turn = asyncio.Lock()  # commands are collective: one at a time, on all ranks

    @property
    def stack_logs(self) -> dict[Path, list[int]]:
        """The ranks that were started here and live, by the logs that they write their stacks to."""
        started = [(rank.log, rank.process) for rank in self.ranks]
        return {log: [process.pid] for log, process in started if process is not None and process.poll() is None}

    async def write_stacks_elsewhere(self) -> None:
        """Have the ranks on the nodes of a cluster write their stacks to their logs."""
        if self.nodes is not None:
            await self.nodes.write_stacks()

    async def call(self, command: str, arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Run `command` on every rank with its own arguments; the ranks' values in order.

        Raises:
            LearnerError: a rank died or raised, or did not answer in time. All ranks have been ended.
            CheckpointError, DataError, WeightTransferError: raised by a rank; all ranks have been ended too.
        """
        return await self._exchange([RankRequest(command, dict(argument)) for argument in arguments], command)

    async def call_all(self, command: str, **arguments: Any) -> list[Any]:
        """`call` with the same arguments on every rank."""
        return await self.call(command, [arguments] * len(self.ranks))

    async def set_up(self, setup: RankSetup) -> None:
        """Send every rank its setup and wait until all have loaded the model."""
        await self._exchange([setup] * len(self.ranks), "start")

    async def shards_written(self) -> list[ShardWritten]:
        """What the ranks say, in order, when each has written its part of the checkpoint that they were told to write.

        Raises:
            LearnerError: a rank has gone, or was not heard of in time.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return [await self._shard_of(rank) for rank in self.ranks]
        except TimeoutError:
            seconds = self._timeout_seconds
            raise LearnerError(f"the learner did not write its checkpoint within {seconds:g} s") from None

    async def _shard_of(self, rank: RankProcess) -> ShardWritten:
        said, gone = asyncio.ensure_future(rank.shards.get()), asyncio.ensure_future(rank.closed.wait())
        try:
            await asyncio.wait([said, gone], return_when=asyncio.FIRST_COMPLETED)
            if said.done():
                return said.result()
            raise LearnerDiedError(f"learner rank {rank.rank} has gone while its checkpoint was being written")
        finally:
            said.cancel()
            gone.cancel()

    async def watch(self) -> NoReturn:
        """Wait without end; raises LearnerError, or what a rank raised, when a rank goes away that was not told to."""
        tasks = {asyncio.create_task(rank.closed.wait()): rank for rank in self.ranks}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            async with self._turn:  # a command in progress knows more
                if self._failure is None and not self._ended_on_purpose:
                    death = await asyncio.to_thread(tasks[done.pop()].describe_death)
                    self._fail(LearnerDiedError(death))
                    await self.kill()
            if self._ended_on_purpose:
                await asyncio.Future()
            assert self._failure is not None
            raise type(self._failure)(str(self._failure)) from self._failure
        finally:
            for task in tasks:
                task.cancel()

    async def shut_down(self) -> None:
        """End the ranks in good order if they still can be, by force if not.

        Raises:
            LearnerError: a rank that had not failed before did not exit with status 0.
        """
        self._ended_on_purpose = True
        if self._failure is None:
            await self.call_all("shutdown")
            await asyncio.to_thread(self._await_exits)
        statuses = {rank.rank: rank.process.poll() for rank in self.ranks if rank.process is not None}
        await self.kill()
        bad = {rank: status for rank, status in statuses.items() if status != 0}
        if self._failure is None and bad:
            rank, status = next(iter(bad.items()))
            raise self._fail(LearnerError(f"learner rank {rank} {describe_exit(status)} after an orderly end"))

    async def kill(self) -> None:
        """End every rank that is still there, now."""
        for rank in self.ranks:
            rank.stop_listening()
            rank.closed.set()
            rank.connection.close()
            if rank.process is not None and rank.process.poll() is None:
                rank.process.kill()
        await asyncio.to_thread(self._reap)
        if self.nodes is not None:
            await self.nodes.close()

    async def _exchange(self, messages: Sequence[Any], command: str) -> list[Any]:
        async with self._turn:
            if self._failure is not None:
                raise self._failed_before() from self._failure
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    sends = [
                        asyncio.to_thread(rank.connection.send, message)
                        for rank, message in zip(self.ranks, messages, strict=True)
                    ]
                    # A rank that has ended cannot be written to; its closed connection says so below.
                    await asyncio.gather(*sends, return_exceptions=True)
                    replies = await self._gather_replies()
            except TimeoutError:
                await asyncio.gather(asyncio.to_thread(dump_stacks, self.stack_logs), self.write_stacks_elsewhere())
                logs = ", ".join(str(rank.log) for rank in self.ranks)
                failure = self._fail(
                    LearnerHungError(
                        f"the learner did not finish {command!r} within {self._timeout_seconds:g} s "
                        f"(learner.timeout_seconds); the stacks of its ranks: {logs}"
                    )
                )
                await self.kill()
                raise failure from None
            except TorlError as error:
                self._fail(error)
                await self.kill()
                raise
            except BaseException:
                # Cancelled in the middle: the ranks cannot be brought back to a common state.
                await self._interrupt(command)
                await self.kill()
                raise
            return [reply.value for reply in replies]

    async def _gather_replies(self) -> list[RankReply]:
        waiting = {asyncio.create_task(rank.replies.get()): rank for rank in self.ranks}
        answers: dict[int, RankReply] = {}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    reply = future.result()
                    if reply is None or reply.error:
                        await self._raise_cause(waiting)
                    else:
                        answers[waiting[future].rank] = reply
                for future in done:
                    del waiting[future]
        finally:
            for future in waiting:
                future.cancel()
        return [answers[rank.rank] for rank in self.ranks]

    async def _raise_cause(self, waiting: Mapping[asyncio.Task[RankReply | None], RankProcess]) -> None:
        """Of the failures that come together, raise the likeliest cause: a rank that died without a word first."""
        deadline = time.monotonic() + _BLAME_SECONDS
        while (left := deadline - time.monotonic()) > 0 and any(not future.done() for future in waiting):
            await asyncio.wait(waiting, timeout=left)
        if self.nodes is not None:
            await _cause_in(waiting)
        silent = [rank for future, rank in waiting.items() if future.done() and future.result() is None]
        if silent:
            raise LearnerDiedError(await asyncio.to_thread(silent[0].describe_death))
        replies = [(rank, future.result()) for future, rank in waiting.items() if future.done()]
        errors = [(rank, reply) for rank, reply in replies if reply is not None and reply.error]
        errors.sort(key=lambda pair: pair[1].error in _COLLECTIVE)
        for rank, reply in errors:
            reply.raise_error(rank.rank, rank.log)

    async def _interrupt(self, command: str) -> None:
        """Fail, unless a rank had gone already: who is connected to it may have heard of it first, and cancelled."""
        gone = [rank for rank in self.ranks if rank.closed.is_set()]
        if gone:
            self._fail(LearnerDiedError(await asyncio.to_thread(gone[0].describe_death)))
        else:
            self._ended_on_purpose = True
            self._fail(LearnerError(f"{command!r} was interrupted"))

    def _fail(self, error: TorlError) -> TorlError:
        self._failure = self._failure or error
        return error

    def _failed_before(self) -> TorlError:
        """Of the kind that the failure was: who hears of it second may be the first whose error is seen."""
        assert self._failure is not None
        return type(self._failure)(f"the learner has failed before: {first_line(self._failure)}")

    def _await_exits(self) -> None:
        deadline = time.monotonic() + _EXIT_SECONDS
        for rank in self.ranks:
            if rank.process is not None:
                try:
                    rank.process.wait(timeout=max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue

    def _reap(self) -> None:
        for rank in self.ranks:
            if rank.process is not None:
                rank.process.wait(timeout=_KILL_SECONDS)


async def _cause_in(waiting: Mapping[asyncio.Task[RankReply | None], RankProcess]) -> None:
    """Wait until a rank is lost or says what is wrong with itself, unless all have said that a collective broke."""
    deadline = time.monotonic() + _LOSS_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        replies = [future.result() for future in waiting if future.done()]
        causes = [reply for reply in replies if reply is None or (reply.error and reply.error not in _COLLECTIVE)]
        if causes or len(replies) == len(waiting):
            return
        silent = [future for future in waiting if not future.done()]
        await asyncio.wait(silent, timeout=left, return_when=asyncio.FIRST_COMPLETED)
