"""Child processes: tie them to their parent, describe their exit, read the tail of their output. No torch."""

import ctypes
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import IO

from torl.base.errors import ConfigError

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
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
