"""Children of a process: they die with it, answer it, and what they said last is found."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from torl.base.runtime.processes.children import (
    ChildExitedError,
    JsonChild,
    describe_exit,
    first_line,
    log_tail,
    output_tail,
)

# A parent whose child writes its own process id when it is tied to the parent, and then waits.
PARENT = """
import os, subprocess, sys
child = "import os, sys; from torl.base.runtime.processes.children import die_with_parent as die;"
child += "die(int(sys.argv[1]));"
child += "print(os.getpid(), flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())]).wait()
"""

# A child that evaluates each request, and shows that what it prints disturbs no answer.
EVALUATOR = """
import os, sys, time
from torl.base.runtime.processes.children import JsonParent
parent = JsonParent()
for request in parent.requests():
    print("printed")
    parent.send(eval(request))
"""


@pytest.fixture
def evaluator(tmp_path: Path) -> Iterator[JsonChild]:
    (tmp_path / "evaluator.py").write_text(EVALUATOR)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with closing(JsonChild("evaluator", "first", environment={"PYTHONPATH": path})) as child:
        yield child


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


def test_child_answers_each_request_in_turn(evaluator: JsonChild) -> None:
    assert evaluator.ask("[os.getppid(), sys.argv[2]]") == [os.getpid(), "first"]
    assert evaluator.ask("sys.stdin.read()", 30) == ""  # a library that reads does not take a request
    evaluator.send("'é\\ud800' * 100_000")
    evaluator.send("2 ** 70")
    assert evaluator.receive(60) == "é\ud800" * 100_000
    assert evaluator.receive(60) == 2**70


def test_exit_of_a_child_is_reported_with_its_status_and_output(evaluator: JsonChild) -> None:
    with pytest.raises(
        ChildExitedError, match=r"(?s)the process exited with status 1\n.*NameError: .*'unknown'"
    ) as exit:
        evaluator.ask("unknown")
    assert exit.value.status == 1
    with pytest.raises(ChildExitedError, match="exited with status 1"):
        evaluator.send("1")


def test_busy_child_times_out_and_a_killed_one_exits_at_once(evaluator: JsonChild) -> None:
    assert evaluator.ask("1") == 1
    with pytest.raises(TimeoutError):
        evaluator.ask("time.sleep(600)", 0.2)
    threading.Timer(0.2, evaluator.kill).start()
    with pytest.raises(ChildExitedError, match="was ended by SIGKILL"):
        evaluator.receive()
    evaluator.close()
    evaluator.close()


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
