"""The ranks of a learner as one: send commands, detect failures, end the ranks. No torch, one event loop."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from torl.base.errors import LearnerDiedError, LearnerError, LearnerHungError, TorlError
from torl.base.runtime.processes.children import describe_exit, first_line
from torl.base.runtime.processes.hangs import dump_stacks
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.learner.messages import RankReply, RankRequest, RankSetup, ShardWritten, ShutDown, request_name
from torl.learner.rank_connection import CAUSE_SECONDS, RankProcess
from torl.learner.rank_launcher import RankLaunchers

_EXIT_SECONDS = 30.0  # for a rank to exit after a shutdown
_KILL_SECONDS = 10.0
_LOSS_SECONDS = 60.0  # for the detection of a lost node, if ranks report only failed collectives
_COLLECTIVE_ERRORS = ("RuntimeError", "DistBackendError")  # of the ranks that did not cause the failure


class RankGroup:
    """All ranks of a learner. After the first failure, every call raises an error of the same type."""

    def __init__(self, timeout_seconds: float) -> None:
        self.ranks: list[RankProcess] = []
        """The ranks in order, added by the functions that start them."""
        self.machines = 1
        """Number of machines in the cluster."""
        self.host = "127.0.0.1"
        """Address at which engine workers reach rank 0."""
        self.nodes: RankLaunchers | None = None
        """Launchers of the ranks, if they run on the nodes of a cluster."""
        self.scratch = ScratchDirectory("torl-learner-")
        """Directory of the process group's file, for ranks on this machine. NCCL reads the file as long as the group
        exists, and without it waits until the group's timeout, also when the ranks shut down."""
        self.shares_prompts = False
        """Whether the samples of a row can share a prompt in all models of the ranks."""
        self._timeout_seconds = timeout_seconds
        self._failure: TorlError | None = None
        self._ended_on_purpose = False  # by `shut_down`, or by the cancellation of a command
        self._command_lock = asyncio.Lock()  # commands are collective: one at a time, on all ranks

    @property
    def processes_by_log(self) -> dict[Path, list[int]]:
        """Ids of the running processes on this machine, by the logs that they write their stacks to."""
        started = [(rank.log, rank.process) for rank in self.ranks]
        return {log: [process.pid] for log, process in started if process is not None and process.poll() is None}

    async def dump_remote_stacks(self) -> None:
        """Make the ranks on the nodes of a cluster write their stacks to their logs."""
        if self.nodes is not None:
            await self.nodes.dump_stacks()

    async def call(self, requests: Sequence[RankRequest]) -> list[Any]:
        """Send a request of one type to each rank, in order, and return the values of their replies.

        Raises:
            LearnerError: A rank exited, raised, or did not reply before the timeout. All ranks have been ended.
            CheckpointError, DataError, WeightTransferError: A rank raised the error. All ranks have been ended.
        """
        return await self._exchange(requests, request_name(requests[0]))

    async def call_all(self, request: RankRequest) -> list[Any]:
        """Send the same request to every rank, as `call` does."""
        return await self._exchange([request] * len(self.ranks), request_name(request))

    async def set_up(self, setup: RankSetup) -> None:
        """Send the setup to every rank and wait until all have loaded the model."""
        self.shares_prompts = all(await self._exchange([setup] * len(self.ranks), "start"))

    async def shards_written(self) -> list[ShardWritten]:
        """Wait until all ranks have written their parts of the current checkpoint, and return their reports in order.

        Each report restarts the timeout.

        Raises:
            LearnerError: A rank exited, or no rank reported before the timeout.
        """
        seconds, loop = self._timeout_seconds, asyncio.get_running_loop()
        waiting = [asyncio.create_task(self._shard_of(rank)) for rank in self.ranks]
        try:
            async with asyncio.timeout(seconds) as timeout:
                for report in asyncio.as_completed(waiting):
                    await report
                    timeout.reschedule(loop.time() + seconds)
        except TimeoutError:
            raise LearnerError(
                f"no rank of the learner wrote its part of a checkpoint within {seconds:g} s (learner.timeout_seconds)"
            ) from None
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return [task.result() for task in waiting]

    async def _shard_of(self, rank: RankProcess) -> ShardWritten:
        shard, closed = asyncio.ensure_future(rank.shards.get()), asyncio.ensure_future(rank.closed.wait())
        try:
            await asyncio.wait([shard, closed], return_when=asyncio.FIRST_COMPLETED)
            if shard.done():
                return shard.result()
            raise LearnerDiedError(f"learner rank {rank.rank} exited while writing its checkpoint")
        finally:
            shard.cancel()
            closed.cancel()

    async def watch(self) -> NoReturn:
        """Wait until a rank exits unexpectedly, and raise LearnerError or the rank's error."""
        tasks = {asyncio.create_task(rank.closed.wait()): rank for rank in self.ranks}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            async with self._command_lock:  # a command in progress knows the cause
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
        """Shut the ranks down, or kill them after a failure.

        Raises:
            LearnerError: A rank did not exit with status 0, although no rank had failed.
        """
        self._ended_on_purpose = True
        if self._failure is None:
            await self.call_all(ShutDown())
            await asyncio.to_thread(self._await_exits)
        statuses = {rank.rank: rank.process.poll() for rank in self.ranks if rank.process is not None}
        await self.kill()
        failed = {rank: status for rank, status in statuses.items() if status != 0}
        if self._failure is None and failed:
            rank, status = next(iter(failed.items()))
            raise self._fail(LearnerError(f"learner rank {rank} {describe_exit(status)} after its shutdown"))

    async def kill(self) -> None:
        """Kill all ranks that are still running."""
        for rank in self.ranks:
            rank.stop_listening()
            rank.closed.set()
            rank.connection.close()
            if rank.process is not None and rank.process.poll() is None:
                rank.process.kill()
        await asyncio.to_thread(self._reap)
        self.scratch.close()
        if self.nodes is not None:
            await self.nodes.close()

    async def _exchange(self, messages: Sequence[Any], command: str) -> list[Any]:
        async with self._command_lock:
            if self._failure is not None:
                raise self._failed_before() from self._failure
            try:
                async with self._timeout_without_progress():
                    sends = [
                        asyncio.to_thread(rank.connection.send, message)
                        for rank, message in zip(self.ranks, messages, strict=True)
                    ]
                    # A write to a rank that has exited fails; its closed connection is detected below.
                    await asyncio.gather(*sends, return_exceptions=True)
                    replies = await self._gather_replies()
            except TimeoutError:
                await asyncio.gather(asyncio.to_thread(dump_stacks, self.processes_by_log), self.dump_remote_stacks())
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
                # Cancelled: the ranks cannot return to a common state.
                await self._interrupt(command)
                await self.kill()
                raise
            return [reply.value for reply in replies]

    @asynccontextmanager
    async def _timeout_without_progress(self) -> AsyncIterator[None]:
        """Raise TimeoutError when no rank has reported progress for the timeout. Annotating a step can take hours."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._timeout_seconds) as timeout:

            def restart() -> None:
                if not timeout.expired():
                    timeout.reschedule(loop.time() + self._timeout_seconds)

            for rank in self.ranks:
                rank.on_row = restart
            try:
                yield
            finally:
                for rank in self.ranks:
                    rank.on_row = None

    async def _gather_replies(self) -> list[RankReply]:
        waiting = {asyncio.create_task(rank.replies.get()): rank for rank in self.ranks}
        replies: dict[int, RankReply] = {}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    reply = future.result()
                    if reply is None or reply.error:
                        await self._raise_cause(waiting)
                    else:
                        replies[waiting[future].rank] = reply
                for future in done:
                    del waiting[future]
        finally:
            for future in waiting:
                future.cancel()
        return [replies[rank.rank] for rank in self.ranks]

    async def _raise_cause(self, waiting: Mapping[asyncio.Task[RankReply | None], RankProcess]) -> None:
        """Raise the most likely cause of several failures: first the exit of a rank that reported no error."""
        deadline = time.monotonic() + CAUSE_SECONDS
        while (remaining := deadline - time.monotonic()) > 0 and any(not future.done() for future in waiting):
            await asyncio.wait(waiting, timeout=remaining)
        if self.nodes is not None:
            await _wait_for_cause(waiting)
        exited = [rank for future, rank in waiting.items() if future.done() and future.result() is None]
        if exited:
            raise LearnerDiedError(await asyncio.to_thread(exited[0].describe_death))
        replies = [(rank, future.result()) for future, rank in waiting.items() if future.done()]
        errors = [(rank, reply) for rank, reply in replies if reply is not None and reply.error]
        errors.sort(key=lambda pair: pair[1].error in _COLLECTIVE_ERRORS)
        for rank, reply in errors:
            reply.raise_error(rank.rank, rank.log)

    async def _interrupt(self, command: str) -> None:
        """Record the cancellation of a command, or the exit of a rank that caused it.

        An engine that is connected to a rank may detect its exit first, and cancel the command.
        """
        exited = [rank for rank in self.ranks if rank.closed.is_set()]
        if exited:
            self._fail(LearnerDiedError(await asyncio.to_thread(exited[0].describe_death)))
        else:
            self._ended_on_purpose = True
            self._fail(LearnerError(f"{command!r} was interrupted"))

    def _fail(self, error: TorlError) -> TorlError:
        self._failure = self._failure or error
        return error

    def _failed_before(self) -> TorlError:
        """Return an error of the failure's type: the error of a second caller may be reported first."""
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


async def _wait_for_cause(waiting: Mapping[asyncio.Task[RankReply | None], RankProcess]) -> None:
    """Wait until a rank is lost or reports its own error, or all ranks report failed collectives."""
    deadline = time.monotonic() + _LOSS_SECONDS
    while (remaining := deadline - time.monotonic()) > 0:
        replies = [future.result() for future in waiting if future.done()]
        causes = [
            reply for reply in replies if reply is None or (reply.error and reply.error not in _COLLECTIVE_ERRORS)
        ]
        if causes or len(replies) == len(waiting):
            return
        pending = [future for future in waiting if not future.done()]
        await asyncio.wait(pending, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
