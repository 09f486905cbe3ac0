"""Bodies that are not JSON, deep JSON, and the end at SIGTERM, at the page of `torl view`."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import Server, run_command
from viewed_runs import row, write_run

OWN = {"X-Torl-View": "1"}
POSTS = ("/api/replay", "/api/verify", "/api/experiment")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", {"step_000000": [row()]})


@pytest.fixture
def viewer(run: Path) -> Iterator[Server]:
    with run_command([sys.executable, "-m", "torl", "view", str(run), "--port", "0"]) as server:
        server.url = server.url.rstrip("/")
        yield server


def test_every_body_that_is_not_json_is_refused_with_a_sentence(viewer: Server) -> None:
    bodies = {
        b"[" * 200_000: "the body is not valid JSON: nested too deeply",
        b'{"a":' * 200_000: "the body is not valid JSON: nested too deeply",
        b'{"run": "\xff"}': "the body is not valid JSON: not UTF-8: byte 9 is 0xff",
        b"\xff\xfe{\x00}\x00": "the body is not valid JSON: not UTF-8: byte 0 is 0xff",
        b"": "the body is not valid JSON: Expecting value: line 1 column 1 (char 0)",
        b"{": "the body is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        b"1" * 5000: "the body is not valid JSON: Exceeds the limit (4300 digits) for integer string conversion: "
        "value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit",
        b"[]": "expected a JSON object",
    }
    for path in POSTS:
        for body, reason in bodies.items():
            assert viewer.ask(path, body, headers=OWN) == (400, {"error": reason})


def test_the_viewer_ends_with_0_at_sigterm(viewer: Server) -> None:
    assert viewer.terminate() == 0


def test_the_viewer_ends_with_0_at_sigterm_while_it_starts(run: Path) -> None:
    """Before the server has its own handler of the signal, if that is soon enough."""
    process = subprocess.Popen(
        [sys.executable, "-m", "torl", "view", str(run), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline().startswith("listening on ")
        process.terminate()
        time.sleep(0.01)
        process.terminate()  # again, while it ends
        assert process.wait(60) == 0
