"""The end of a command whose reader has closed the output, as in `COMMAND | head`."""

import functools
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import IO


def ends_with_its_reader(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Make the function of a command line end quietly, with status 128 + SIGPIPE, if a reader of its output has left.

    The function takes the words of the command line, None for those of the process, and returns the exit status.
    """

    @functools.wraps(main)
    def ending(arguments: Sequence[str] | None = None) -> int:
        try:
            try:
                status = main(arguments)
            except SystemExit:
                _flush()
                raise
            _flush()  # here, not at the exit of the interpreter, which has another status
        except (BrokenPipeError, BaseExceptionGroup) as error:
            if isinstance(error, BaseExceptionGroup) and error.subgroup(BrokenPipeError) is None:
                raise
            without_reader = [stream for stream in (sys.stdout, sys.stderr) if _has_no_reader(stream)]
            if not without_reader:  # another pipe, such as the pipe to a child process
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)  # where the rest of the buffers goes
            for stream in without_reader:
                os.dup2(nowhere, stream.fileno())
            return 128 + signal.SIGPIPE
        return status

    return ending


def _flush() -> None:
    if sys.stdout is not None:  # as it is in `COMMAND >&-`
        sys.stdout.flush()


def _has_no_reader(stream: IO[str] | None) -> bool:
    if stream is None:
        return False
    output = select.poll()
    output.register(stream, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
