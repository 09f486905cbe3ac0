"""A server in a separate process, and its clients in tests."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

ENDLESS = "while True: pass"


@dataclass
class Server:
    """A server that listens."""

    process: subprocess.Popen[str]
    url: str

    def ask(self, path: str, content: Any = None, *, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status code and answer; a POST if there is content, as JSON unless it is bytes."""
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        given = {"Content-Type": "application/json", **(headers or {})}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body, given), timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def run(self, code: str, **fields: Any) -> Any:
        """The answer of `/run_code` to a program."""
        status, answer = self.ask("/run_code", {"code": code, "language": "python", **fields})
        assert status == 200, answer
        return answer

    def metric(self, name: str) -> float:
        """One of the numbers that the server counts; 0 for a count that has not begun."""
        with urllib.request.urlopen(f"{self.url.removesuffix('/mcp')}/metrics", timeout=60) as response:
            text = response.read().decode()
        found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", text)
        return float(found.group(1)) if found else 0.0

    def resident_mb(self) -> float:
        """Memory of the server's own process, in MB."""
        return resident_mb(self.process.pid)

    def terminate(self, seconds: float = 60) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def run_server(*options: str, command: str = "serve", within: Sequence[str] = ()) -> Iterator[Server]:
    """`python -m torl_sandbox serve` on a port that is free; `within` is a command that runs another."""
    words = [*within, sys.executable, "-m", "torl_sandbox", command, "--port", "0", *options]
    with run_command(words) as server:
        yield server


@contextmanager
def run_command(words: Sequence[str]) -> Iterator[Server]:
    """A command that serves and prints its address."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Server(process, line.split()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def connected(server: Server, received: int | None = None) -> socket.socket:
    """A connection; the kernel holds about this many bytes of unread data."""
    host, port = server.url.removeprefix("http://").removesuffix("/mcp").split(":")
    connection = socket.socket()
    if received is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    connection.settimeout(60)
    connection.connect((host, int(port)))
    return connection


def given_up(connection: socket.socket) -> bytes:
    """The data until the other side closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def resident_mb(process: int) -> float:
    """Memory of a process that is in RAM, in MB."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited for nothing"
        time.sleep(0.01)
