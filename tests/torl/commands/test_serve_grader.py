"""The limits of the grader's server, which are those of the other servers."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from serving import Server, connected, given_up, run_command, until

PROGRAM = """
from torl.commands.grader_server import serve
from torl_sandbox.servers.settings import ServerSettings
from torl.components.grading import Grader
serve(Grader(1, timeout_seconds=20), ServerSettings(port=0, idle_timeout_seconds=1.5, body_mib=1))
"""
HEAD = b"POST /grade HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PAIR = {"reference": "2\\pi", "answer": "2*pi"}
ENDLESS = {"reference": "2\\pi", "answer": "9^{9^{9^9}}"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_command([sys.executable, "-c", PROGRAM]) as running:
        yield running


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"reference": "1"}', b'{"reference": "1", "answer": "\\ud800"}', b"\xff", b"", b"[1]"],
)
def test_invalid_body_is_refused_without_a_traceback(
    server: Server, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert server.ask("/grade", body)[0] == 422
    assert server.ask("/grade", PAIR) == (200, {"correct": True, "failure": None})
    assert capfd.readouterr().err == ""


def test_more_pairs_or_bytes_than_allowed_are_refused(server: Server) -> None:
    assert server.ask("/grade", [{"reference": "", "answer": ""}] * 10_001)[0] == 422
    assert server.ask("/grade", {"reference": "1" * (2 << 20), "answer": "1"})[0] == 413
    assert server.ask("/grade", PAIR, headers={"Content-Type": "text/plain"})[0] == 415


def test_requests_that_do_not_arrive_are_bounded_and_cut_off(server: Server) -> None:
    with contextlib.ExitStack() as opened:
        slow = [opened.enter_context(connected(server)) for _ in range(64)]
        for each in slow:
            each.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        until(lambda: server.ask("/grade", PAIR)[0] == 429)
        assert [given_up(each).split()[1] for each in slow] == [b"408"] * len(slow)
    assert server.ask("/grade", PAIR)[0] == 200


def test_sigterm_answers_pending_requests() -> None:
    with run_command([sys.executable, "-c", PROGRAM.replace("=20", "=2")]) as server, connected(server) as connection:
        body = json.dumps(ENDLESS).encode()
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        for _ in range(3):  # answered after the server has read the pair
            urllib.request.urlopen(f"{server.url}/v1/ping", timeout=60).read()
        assert server.terminate() == 0
        assert json.loads(given_up(connection).partition(b"\r\n\r\n")[2]) == {"correct": False, "failure": "timeout"}


def test_its_commands_but_serve_need_none_of_its_libraries() -> None:
    program = (
        "import sys\nsys.modules['uvicorn'] = None\nfrom torl.commands.grader import main\nsys.exit(main(['serve']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "error: uvicorn is not installed: pip install 'torl[serve]'\n")
