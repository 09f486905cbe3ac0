"""Child processes: start them, tie them to their parent, ask them, describe their exit and output. No torch."""

import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from torl.base.errors import ConfigError

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_EXIT_SECONDS = 5.0  # for a process that has closed its channel
_PIECE_BYTES = 1 << 16
TAIL_BYTES = 4000
# Replaces itself with the program, which keeps the request to the kernel.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


def die_with_parent(parent: int) -> None:
    """In a child: have the kernel kill this process when its parent dies. Exit with status 1 if the parent is dead.

    For the kernel, the parent is the *thread* that started this process: start children in a thread that lives as long
    as their owner.

    Args:
        parent: Process id of the parent, passed by the parent. `os.getppid()` may return another one by now.

    Raises:
        OSError: The kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)


def dying_with_parent(*words: str) -> tuple[str, ...]:
    """Return the words of a command that the kernel kills when this process dies, for programs that are not torl's.

    As in `die_with_parent`, the parent is the thread that starts the command.
    """
    return (sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *words)


def start_module(
    module: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({}), **streams: Any
) -> subprocess.Popen[bytes]:
    """Start a module as a program in a new session, so that Ctrl-C reaches only this process.

    Its first argument is the id of this process, for `die_with_parent`: start it in a thread that lives as long as its
    owner.

    Args:
        module: Module to run, as with `python -m`.
        arguments: Further arguments.
        environment: Environment variables in addition to those of this process.
        streams: Standard streams and inherited descriptors, as for `Popen`.

    Raises:
        OSError: The process cannot be started.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments],
        env={**os.environ, **environment},
        start_new_session=True,
        **streams,
    )


class ChildExitedError(Exception):
    """A child process exited instead of answering. The message has its exit status and the end of its stderr.

    Attributes:
        status: Exit status as in `Popen.returncode`.
    """

    def __init__(self, status: int | None, errors: str) -> None:
        """Describe the exit."""
        super().__init__(f"the process {describe_exit(status)}\n{errors}".rstrip())
        self.status = status


class JsonChild:
    """A child process that answers in lines of JSON: for work that is heavy, endless or hostile.

    One thread at a time talks to it, and any thread may kill it. The module begins with a `JsonParent`.
    """

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        """Start the process. Has the arguments and the error of `start_module`."""
        self._channel, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._buffer = bytearray()
        with theirs:
            try:
                self._process = start_module(
                    module,
                    *arguments,
                    environment=environment,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                )
            except OSError:
                self._channel.close()
                self._errors.close()
                raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, request: Any, seconds: float | None = None) -> Any:
        """Send a request and return the answer. Has the argument and the errors of `receive`."""
        self.send(request, seconds)
        return self.receive(seconds)

    def send(self, message: Any, seconds: float | None = None) -> None:
        """Send a message. Has the argument and the errors of `receive`."""
        with self._raising_exit():
            self._channel.settimeout(seconds)
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message.

        Args:
            seconds: Timeout by the clock. None waits until the process exits.

        Raises:
            ChildExitedError: The process exited or was killed.
            TimeoutError: The process did not answer in time: it is busy, stopped, or gets no CPU time.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._raising_exit():
            while (end := self._buffer.find(b"\n")) < 0:
                self._channel.settimeout(None if deadline is None else max(1e-3, deadline - time.monotonic()))
                piece = self._channel.recv(_PIECE_BYTES)
                if not piece:
                    raise EOFError
                self._buffer += piece
        line = self._buffer[:end]
        del self._buffer[: end + 1]
        return json.loads(line)

    def kill(self) -> None:
        """Kill the process. A thread that waits for its answer sees the exit."""
        self._process.kill()

    def close(self) -> None:
        """Kill and reap the process, and close its channel. Safe to call twice, and while a thread waits for it."""
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._errors.close()

    @contextlib.contextmanager
    def _raising_exit(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError) as error:
            if isinstance(error, TimeoutError) and self._process.poll() is None:
                raise TimeoutError("the process did not answer in time") from None
            status = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_EXIT_SECONDS)
            raise ChildExitedError(status, "" if self._errors.closed else output_tail(self._errors)) from error


class JsonParent:
    """The parent of this process, which is a `JsonChild`: it sends requests and receives answers."""

    def __init__(self) -> None:
        """Take over the channel at standard input, which becomes /dev/null, and die with the parent."""
        die_with_parent(int(sys.argv[1]))
        self._channel = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def send(self, message: Any) -> None:
        """Send a message."""
        self._channel.sendall(json.dumps(message).encode() + b"\n")

    def requests(self) -> Iterator[Any]:
        """Yield the messages of the parent until it closes the channel."""
        with self._channel.makefile("rb") as lines:
            yield from map(json.loads, lines)


def command_words(command: str, owner: str) -> list[str]:
    """Split a command into its program and arguments as a shell does, without running a shell.

    Args:
        command: Command from a configuration.
        owner: Owner of the command in errors, such as "the agent's".

    Raises:
        ConfigError: The program does not exist, or a quotation is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{owner} command {command!r} cannot be read: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise ConfigError(f"{owner} command {command!r}: there is no such program")
    return words


def describe_exit(status: int | None) -> str:
    """Describe how a process exited, as the end of a sentence about it.

    Args:
        status: Exit status as in `Popen.returncode`.
    """
    if status is None:
        return "did not exit"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def output_tail(file: IO[bytes], *, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """Read the last `limit` bytes of an open file as text, ignoring the bytes before `start`."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(start, end - limit))
    return file.read().decode(errors="replace").strip()


def log_tail(path: Path, *, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """Read `output_tail` of a log file. An unreadable log yields a note instead of an error that hides another one."""
    try:
        with path.open("rb") as log:
            return output_tail(log, start=start, limit=limit)
    except OSError as error:
        return f"(no log: {error.strerror})"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
