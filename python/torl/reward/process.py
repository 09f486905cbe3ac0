"""The parent's side of one grader process: start it, ask it, notice how it ended."""

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

from torl.errors import RewardError

_START_SECONDS = 120.0

WORKER_COMMAND = (sys.executable, "-P", "-m", "torl.reward.worker")


class WorkerTimeout(Exception):
    """The pair used up its time; the process is gone."""


class WorkerCrash(Exception):
    """The process ended by itself or was killed by someone else."""


class GraderProcess:
    """One grader process, started and proven to work by the constructor.

    The process is started with exec, never by a bare fork: the parent has threads and an engine in it. It ends
    when the thread that started it ends, so start it in a thread that lives as long as the pool.
    """

    def __init__(self) -> None:
        """Start the process and wait for its self-test.

        Raises:
            RewardError: it could not be started, or failed its self-test; carries the end of its stderr.
        """
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                [*WORKER_COMMAND, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # The order of sympy's sets follows string hashes: with one seed a pair is judged alike everywhere.
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
        try:
            self._receive(_START_SECONDS)
        except (WorkerTimeout, WorkerCrash) as error:
            last_words = self._last_words()
            self.kill()
            raise RewardError(f"a grader process did not start: {error}\n{last_words}".rstrip()) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float) -> dict[str, Any]:
        """Have one pair judged: {"correct": bool} or {"correct": False, "error": reason}.

        Raises:
            WorkerTimeout: the pair used `cpu_seconds` of CPU time, or `wall_seconds` passed.
            WorkerCrash: the process ended for any other reason.
        """
        request = {"reference": reference, "answer": answer, "cpu_seconds": cpu_seconds}
        try:
            self._channel.settimeout(wall_seconds)
            self._channel.sendall(json.dumps(request).encode() + b"\n")
            reply: dict[str, Any] = json.loads(self._receive(wall_seconds))
        except WorkerTimeout:
            self.kill()
            raise
        except (OSError, WorkerCrash) as error:
            code = self._exit_code()
            self.kill()
            if code == -signal.SIGPROF:
                raise WorkerTimeout("CPU time used up") from None
            raise WorkerCrash(f"the process ended with code {code}") from error
        return reply

    def kill(self) -> None:
        """End the process, if it still runs, and reap it. May be called from any thread, and twice."""
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._errors.close()

    def _exit_code(self) -> int | None:
        """The code of a process that has closed its end of the channel, hence is about to exit."""
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
                raise WorkerTimeout(f"no answer within {seconds:g} s")
            try:
                piece = self._channel.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise WorkerCrash("the process ended")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", errors="replace")[-2000:].strip()
