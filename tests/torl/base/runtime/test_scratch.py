"""Temporary directories of processes: private, removed with their process, and after a process that was killed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torl.base.errors import EngineError
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.components.engine.vllm.processes import EngineDirectory

PREFIX = "torl-learner-"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate temporary directory, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def test_it_is_private_and_goes_with_all_that_it_holds(temporary: Path) -> None:
    directory = ScratchDirectory(PREFIX)
    path = directory.open()
    assert path.parent == temporary
    assert path.name.startswith(PREFIX)
    assert os.stat(path).st_mode & 0o077 == 0
    (path / "socket").touch()
    directory.close()
    directory.close()
    assert list(temporary.iterdir()) == []


def test_those_of_the_living_are_left_alone(temporary: Path) -> None:
    with ScratchDirectory(PREFIX) as first, ScratchDirectory(PREFIX) as second:
        assert sorted(temporary.iterdir()) == sorted([first, second])
    assert list(temporary.iterdir()) == []


def test_that_of_a_process_that_was_killed_is_removed_by_the_next(temporary: Path) -> None:
    program = (
        "import os, tempfile\n"
        "from torl.base.runtime.processes.resources import ScratchDirectory\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        f"(ScratchDirectory({PREFIX!r}).open() / 'socket').touch()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    (left,) = temporary.iterdir()
    assert (left / "socket").exists()
    other = temporary / "torl-engine-1"
    other.mkdir()
    with ScratchDirectory(PREFIX) as path:
        assert sorted(temporary.iterdir()) == sorted([path, other])


def test_a_path_too_long_for_sockets_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = temporary / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EngineError, match="set TMPDIR to a shorter one"):
        EngineDirectory().open()
    assert list(long.iterdir()) == []
