"""What every parent of processes needs: that they die with it, and that their last words are heard. No torch."""

import ctypes
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import IO

from torl.errors import ConfigError

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
TAIL_BYTES = 4000


def die_with_parent(parent: int) -> None:
    """In a child: be killed when the parent dies, however it dies; exit with status 1 if it is dead already.

    The kernel takes the *thread* that started this process for its parent: start children in a thread that lives as
    long as their owner.

    Args:
        parent: process id of the parent, told by itself; by the time the child asks, another may have its place.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)


def command_words(command: str, whose: str) -> list[str]:
    """The program of a command and its arguments, as a shell splits them; there is no shell.

    Args:
        command: that a configuration gives.
        whose: it is, for the error: "the agent's".

    Raises:
        ConfigError: there is no such program, or a quotation is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{whose} command {command!r} cannot be read: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise ConfigError(f"{whose} command {command!r}: there is no such program")
    return words


def describe_exit(status: int | None) -> str:
    """How a process ended, as the end of a sentence about it; `status` as in `Popen.returncode`."""
    if status is None:
        return "did not exit"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def output_tail(file: IO[bytes], *, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """The last `limit` bytes from byte `start` on of what a process wrote into an open file, as text."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(start, end - limit))
    return file.read().decode(errors="replace").strip()


def log_tail(path: Path, *, start: int = 0, limit: int = TAIL_BYTES) -> str:
    """`output_tail` of a log file; a log that cannot be read says so, and hides no other error."""
    try:
        with path.open("rb") as log:
            return output_tail(log, start=start, limit=limit)
    except OSError as error:
        return f"(no log: {error.strerror})"


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type where it has none."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
