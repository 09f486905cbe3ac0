"""One directory for all that an engine would leave in the temporary one: sockets and files its processes meet by.

It is locked as long as its controller lives, so that the next engine can tell what a killed controller left behind, and
removes it.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from torl.errors import EngineError

_PREFIX = "torl-engine-"
_MAX_NAME = 37  # of a socket in it: a slash and a UUID
_MAX_PATH = 107  # of a socket, on Linux


class EngineDirectory:
    """A directory that nobody else can enter."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock = -1

    def open(self) -> Path:
        """Make it, after those of dead controllers were removed.

        Raises:
            EngineError: the path of the temporary directory is too long for sockets.
        """
        _remove_abandoned()
        while self._path is None:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = _open(path)
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if path.exists():
                    self._path, self._lock = path, lock
                else:  # another controller that starts took it for abandoned before it was locked
                    os.close(lock)
        if len(os.fsencode(self._path)) + _MAX_NAME > _MAX_PATH:
            self.close()
            raise EngineError(f"{tempfile.gettempdir()}: its path is too long for sockets: set TMPDIR to a shorter one")
        return self._path

    def close(self) -> None:
        """Remove it with all that it holds. Safe to call twice."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(self._lock)


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _open(path)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its controller lives
            pass
        finally:
            os.close(lock)


def _open(path: Path) -> int | None:
    """A descriptor of the directory; None if it is somebody else's, or no longer there."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
