"""The parent's side of a grader process: start it, send it pairs, detect how it exited."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from torl.base.errors import RewardError
from torl.base.runtime.processes.children import describe_exit, output_tail

_START_SECONDS = 120.0

WORKER_COMMAND = (sys.executable, "-P", "-m", "torl.components.grading.worker")


class WorkerTimeoutError(Exception):
    """A pair used up its CPU time, and the process has exited."""


class WorkerCrashError(Exception):
    """The process exited, was killed, or stopped responding before its CPU time was used up."""


class GraderProcess:
    """A grader process. It must pass its self-test (`wait_until_ready`) before it grades pairs.

    The process is started with exec, never by a bare fork, because the parent has threads and an engine. It exits when
    the thread that started it exits, so start it in a thread that lives as long as the grader.
    """

    def __init__(self) -> None:
        """Start the process.

        Raises:
            RewardError: The process could not be started.
        """
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                [*WORKER_COMMAND, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # The order of sympy's sets follows string hashes: with one seed a pair has the same verdict everywhere.
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,  # Ctrl-C is for the parent
            )
        except OSError as error:
            ours.close()
            raise RewardError(f"a grader process could not be started: {error}") from error
        finally:
            theirs.close()
        self._channel = ours
        self._buffer = b""

    def wait_until_ready(self) -> None:
        """Wait for the self-test.

        Raises:
            RewardError: The process exited or failed the self-test. The message has the end of its stderr.
        """
        try:
            self._receive(_START_SECONDS)
        except (WorkerCrashError, OSError, ValueError) as error:
            output = "" if self._errors.closed else output_tail(self._errors)
            self.kill()
            raise RewardError(f"a grader process did not start: {error}\n{output}".rstrip()) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(
        self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float, *, exact: bool = False
    ) -> dict[str, Any]:
        """Return the reply on a pair: {"correct": bool} or {"correct": False, "error": reason}.

        Raises:
            WorkerTimeoutError: The pair used `cpu_seconds` of CPU time.
            WorkerCrashError: The process exited for another reason, or did not reply within `wall_seconds`: it is
                stopped or gets no CPU time.
        """
        request = {"reference": reference, "answer": answer, "cpu_seconds": cpu_seconds, "exact": exact}
        try:
            self._channel.settimeout(wall_seconds)
            self._channel.sendall(json.dumps(request).encode() + b"\n")
            reply: dict[str, Any] = json.loads(self._receive(wall_seconds))
        except (OSError, WorkerCrashError) as error:
            timed_out = isinstance(error, TimeoutError)
            code = self._process.poll() if timed_out else self._exit_code()
            self.kill()
            if code == -signal.SIGPROF:
                raise WorkerTimeoutError("CPU time used up") from None
            reason = f"no answer within {wall_seconds:g} s" if timed_out else f"the process {describe_exit(code)}"
            raise WorkerCrashError(reason) from error
        return reply

    def terminate(self) -> None:
        """Kill the process, from any thread; a thread that waits for its reply sees a crash."""
        self._process.kill()

    def kill(self) -> None:
        """Kill and reap the process and close its channel. Can be called twice, by the thread that uses it."""
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._errors.close()

    def _exit_code(self) -> int | None:
        """Return the exit code of a process that has closed its end of the channel, hence is about to exit."""
        try:
            return self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return None

    def _receive(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not poller.poll(remaining * 1000):
                raise TimeoutError(f"no answer within {seconds:g} s")
            try:
                piece = self._channel.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise WorkerCrashError("the process exited")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
