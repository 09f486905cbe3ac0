"""Resources that a server holds and frees: overload, clients that go away, large bodies, its own end."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serving import ENDLESS, Server, connected, given_up, run_command, run_server, until

RUNNING, QUEUED = 'torl_sandbox_runs_now{state="running"}', 'torl_sandbox_runs_now{state="queued"}'
CANCELLED, OPEN = "torl_sandbox_cancelled_total", "torl_sandbox_requests_open"
OK = 'torl_sandbox_runs_total{outcome="ok"}'
SLOW = "n = 0\nwhile n < 3_000_000: n += 1\nprint({})"


def send(server: Server, path: str, content: dict[str, Any]) -> socket.socket:
    """A request whose answer is not awaited yet."""
    body = json.dumps(content).encode()
    connection = connected(server)
    host = connection.getpeername()[0]
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(f"{head}\r\n\r\n".encode() + body)
    return connection


def send_code(server: Server, code: str, **fields: Any) -> socket.socket:
    return send(server, "/run_code", {"code": code, "language": "python", **fields})


# --- overload ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server() -> Iterator[Server]:
    with run_server(
        "--workers", "1", "--max-pending-requests", "4", "--body-mib", "1", "--max-pending-mib", "1"
    ) as running:
        yield running


@pytest.fixture
def small(small_server: Server) -> Server:
    """The server when it runs nothing: a cancelled run of another test counts as running until its worker is reaped."""
    until(lambda: small_server.metric(RUNNING) == 0)
    return small_server


def test_full_queue_returns_429_and_accepted_requests_finish(small: Server) -> None:
    def ask(number: int) -> tuple[int, int, Any]:
        return number, *small.ask("/run_code", {"code": SLOW.format(number), "language": "python", "run_timeout": 60})

    refused = small.metric("torl_sandbox_refused_total")
    with ThreadPoolExecutor(40) as threads:
        answers = list(threads.map(ask, range(40)))
    accepted = [(number, answer) for number, status, answer in answers if status == 200]
    others = [answer for _, status, answer in answers if status == 429]
    assert len(accepted) + len(others) == 40
    assert len(accepted) >= 4
    assert len(others) >= 20
    for number, answer in accepted:
        assert answer["run_result"]["stdout"] == f"{number}\n"
    assert all("which is the maximum" in answer["detail"] for answer in others)
    assert small.metric("torl_sandbox_refused_total") - refused == len(others)
    assert small.metric('torl_sandbox_requests_total{code="200",path="/run_code"}') == len(accepted)
    assert small.metric(OPEN) == 0
    assert small.run("print(1)")["run_result"]["stdout"] == "1\n"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(small: Server) -> None:
    status, answer = small.ask("/run_code", {"code": "#" * (2 << 20), "language": "python"})
    assert (status, answer["detail"][-24:]) == (413, "; the maximum is 1048576")
    assert small.metric(OPEN) == 0


def test_bodies_are_bounded_together(small: Server) -> None:
    large = {"code": f"{ENDLESS}#{'x' * 800_000}", "language": "python", "run_timeout": 30}
    held = send(small, "/run_code", large)
    until(lambda: small.metric(RUNNING) == 1)
    status, answer = small.ask("/run_code", large)
    assert status == 429
    assert "more would exceed the maximum" in answer["detail"]
    held.close()
    until(lambda: small.metric(OPEN) == 0)
    assert small.metric("torl_sandbox_request_bytes_open") == 0


def test_a_body_that_does_not_come_gives_its_place_back() -> None:
    with run_server("--workers", "1", "--max-pending-requests", "1", "--idle-timeout-seconds", "1") as server:
        slow = send(server, "/run_code", {})
        slow.close()
        until(lambda: server.metric(OPEN) == 0)  # else the next request may be one too many
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /run_code HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
            )
            until(lambda: server.metric(OPEN) == 1)
            assert server.ask("/run_code", {"code": "1", "language": "python"})[0] == 429
            assert slow.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
        assert server.run("print(1)")["status"] == "Success"


IMPATIENT = """
import sys
import torl_sandbox.servers.admission as admission
import torl_sandbox.__main__ as main
admission._MIN_WALL_SECONDS = 1.0
sys.exit(main.main(["serve", "--port", "0", "--workers", "1"]))
"""


def test_run_that_waits_too_long_is_refused_and_the_running_one_continues() -> None:
    with run_command([sys.executable, "-c", IMPATIENT]) as server:
        held = send_code(server, ENDLESS, run_timeout=60)
        until(lambda: server.metric(RUNNING) == 1)
        for path, body in (
            ("/run_code", {"code": "1", "language": "python", "run_timeout": 0.1}),
            ("/run_jupyter", {"cells": ["1"], "total_timeout": 0.1}),
        ):
            status, answer = server.ask(path, body)
            assert (status, "not over after 1 s" in answer["detail"]) == (429, True)
        assert (server.metric(RUNNING), server.metric(OPEN)) == (1, 1)
        held.close()


# --- clients that go away ---------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_has_its_run_cancelled(small: Server) -> None:
    cancelled = small.metric(CANCELLED)
    running = send_code(small, ENDLESS, run_timeout=60)
    until(lambda: small.metric(RUNNING) == 1)
    waiting = send_code(small, f"print('never')\n{ENDLESS}", run_timeout=60)
    until(lambda: small.metric(QUEUED) == 1)
    waiting.close()
    running.close()
    until(lambda: small.metric(CANCELLED) == cancelled + 2, seconds=10)
    assert small.run("print(1)")["run_result"]["stdout"] == "1\n"
    assert small.metric(OPEN) == 0


def test_a_client_that_goes_away_has_its_notebook_cancelled(small: Server) -> None:
    cancelled, ok = small.metric(CANCELLED), small.metric(OK)
    connection = send(small, "/run_jupyter", {"cells": ["x = 1", ENDLESS, ENDLESS]})
    # Wait until the endless cell runs: a disconnect between two runs of a notebook cancels no run. Two runs precede
    # this cell: the start of the notebook, and the first cell.
    until(lambda: small.metric(OK) == ok + 2 and small.metric(RUNNING) == 1)
    connection.close()
    until(lambda: small.metric(CANCELLED) == cancelled + 1 and small.metric(OPEN) == 0, seconds=10)


@pytest.mark.slow
def test_ten_thousand_notebooks_leave_nothing_in_memory() -> None:
    with run_server("--workers", "2") as server:

        def ask(number: int) -> None:
            cells = {"cells": [f"x = [{number}] * 1000", "len(x)"]}
            if number % 3:
                assert server.ask("/run_jupyter", cells)[1]["cells"][1]["display"] == [{"text/plain": "1000"}]
            else:
                send(server, "/run_jupyter", cells).close()

        with ThreadPoolExecutor(16) as threads:
            list(threads.map(ask, range(2000)))
            before = server.resident_mb()
            list(threads.map(ask, range(10_000)))
        until(lambda: server.metric(OPEN) == 0)
        assert server.resident_mb() < before + 20


# --- its end ----------------------------------------------------------------------------------------------------------


def test_sigterm_finishes_requests_and_exits_with_0() -> None:
    with run_server("--workers", "1", "--grace-period-seconds", "600") as server:
        connections = [send_code(server, SLOW.format(number), run_timeout=60) for number in range(4)]
        until(lambda: server.metric(OPEN) == 4)
        assert server.terminate(seconds=280) == 0
        for number, connection in enumerate(connections):
            answer = json.loads(given_up(connection).partition(b"\r\n\r\n")[2])
            assert answer["run_result"]["stdout"] == f"{number}\n"
        with pytest.raises(OSError, match="refused"):
            send_code(server, "print(1)")


def test_sigterm_cancels_requests_after_grace_period() -> None:
    with run_server("--workers", "1", "--cpu-seconds", "600", "--grace-period-seconds", "1") as server:
        connection = send_code(server, ENDLESS, run_timeout=600)
        until(lambda: server.metric(RUNNING) == 1)
        assert server.terminate() == 0
        assert given_up(connection) == b""


def test_an_idle_connection_does_not_hold_the_end_back() -> None:
    with run_server("--workers", "1", "--grace-period-seconds", "600", "--idle-timeout-seconds", "600") as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))):
            assert server.metric(OPEN) == 0
            assert server.terminate() == 0


# --- its start --------------------------------------------------------------------------------------------------------


def refused(*options: str) -> str:
    words = [sys.executable, "-m", "torl_sandbox", "serve", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_address_in_use_is_an_error(small: Server) -> None:
    port = small.url.rsplit(":", 1)[1]
    assert refused("--port", port).startswith(f"error: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--port", "70000"), "error: argument --port: must be between 0 and 65535, got 70000"),
        (("--host", "nowhere.invalid"), "error: cannot listen on nowhere.invalid:8080: "),
        (("--workers", "0"), "error: argument --workers: must be a positive number, got 0"),
        (("--memory-mib", "10"), "error: argument --memory-mib: must be between 192 and 4096, got 10"),
        (("--memory-mib", "5000"), "error: argument --memory-mib: must be between 192 and 4096, got 5000"),
        (("--max-pending-requests", "0"), "error: argument --max-pending-requests: must be a positive number, got 0"),
        (("--body-mib", "0"), "error: argument --body-mib: must be a positive number, got 0"),
        (("--idle-timeout-seconds", "0"), "error: argument --idle-timeout-seconds: must be a positive number, got 0"),
        (("--cpu-seconds", "nan"), "error: argument --cpu-seconds: must be a positive number, got nan"),
    ],
)
def test_settings_that_cannot_be_are_errors(options: tuple[str, ...], said: str) -> None:
    assert said in refused(*options)


def test_without_its_libraries_the_error_names_the_extra() -> None:
    program = (
        "import sys\nsys.modules['uvicorn'] = None\nimport torl_sandbox.__main__ as main\n"
        "sys.exit(main.main(['serve', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: uvicorn is not installed: pip install 'torl-sandbox[serve]' or 'torl[serve]'\n",
    )


def test_many_clients_at_once_get_their_own_answers() -> None:
    with run_server("--workers", "2") as server:
        wrong: list[Any] = []

        def ask(client: int) -> None:
            for turn in range(20):
                number = 100 * client + turn
                if server.run(f"print({number})")["run_result"]["stdout"] != f"{number}\n":
                    wrong.append(number)

        threads = [threading.Thread(target=ask, args=(client,)) for client in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert server.metric(OK) == 320
