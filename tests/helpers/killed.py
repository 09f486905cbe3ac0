"""A function that is killed by SIGKILL at each point at which it changes a file, in a separate process."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def killed_before_each_change(function: Callable[[Path], object], copies: Callable[[int], Path]) -> Iterator[Path]:
    """Call a function on a copy of a directory and kill it before its first change, then on another before its second.

    Args:
        function: Function that changes files of a directory.
        copies: Function that makes a copy, by a number.

    Yields:
        Each directory as the killed function has left it, without the one in which it has ended.
    """
    number = 0
    while True:
        directory = copies(number)
        if not _is_killed(lambda: function(directory), directory, number):  # noqa: B023
            return
        yield directory
        number += 1


def _is_killed(function: Callable[[], object], directory: Path, changes: int) -> bool:
    """Whether a call makes more than this number of changes in a directory: it is killed before the next one."""
    pid = os.fork()
    if pid == 0:
        left = [changes]

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            opens = event == "open" and arguments[2] is not None and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if (opens or event in _CHANGES) and str(directory) in str(arguments[0]):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        sys.addaudithook(count)
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), f"the function ended with status {status}"
    return status == signal.SIGKILL
