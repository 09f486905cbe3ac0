"""Children of a process: they die with it, and what they said last is found."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torl.base.runtime.processes.children import describe_exit, first_line, log_tail, output_tail

# A parent whose child writes its own process id when it is tied to the parent, and then waits.
PARENT = """
import os, subprocess, sys
child = "import os, sys; from torl.base.runtime.processes.children import die_with_parent as die;"
child += "die(int(sys.argv[1]));"
child += "print(os.getpid(), flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())]).wait()
"""


def is_running(pid: int) -> bool:
    """A zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_dies_with_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 60
        while is_running(child):
            assert time.monotonic() < deadline, "the child outlived its parent"
            time.sleep(0.01)


def test_child_exits_if_its_parent_has_exited() -> None:
    program = "import sys; from torl.base.runtime.processes import children; children.die_with_parent(int(sys.argv[1]))"
    as_if = [sys.executable, "-c", program, str(os.getppid())]  # the parent of its parent
    assert subprocess.run(as_if, check=False).returncode == 1
    tied = [sys.executable, "-c", program, str(os.getpid())]
    assert subprocess.run(tied, check=False).returncode == 0


@pytest.mark.parametrize(
    ("status", "expected"),
    [(None, "did not exit"), (0, "exited with status 0"), (3, "exited with status 3"), (-9, "was ended by SIGKILL")],
)
def test_an_exit_is_described(status: int | None, expected: str) -> None:
    assert describe_exit(status) == expected


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    log.write_bytes(b"of an earlier run\n" + "né fin".encode() + b"\n")
    assert log_tail(log) == "of an earlier run\nné fin"
    assert log_tail(log, limit=5) == "fin"
    assert log_tail(log, limit=6) == "\ufffd fin"  # cut inside a character
    assert log_tail(log, start=18) == "né fin"
    assert log_tail(log, start=18, limit=4) == "fin"
    assert log_tail(tmp_path / "none.log") == "(no log: No such file or directory)"
    with log.open("r+b") as file:
        file.seek(3)
        assert output_tail(file, limit=4) == "fin"


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("\nthe cause\nand much more")) == "the cause"
    assert first_line(KeyboardInterrupt()) == "KeyboardInterrupt"
