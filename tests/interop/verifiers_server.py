"""The toolset's server as verifiers starts it, and the channel by which a rollout's state travels to it and back."""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from mcp import Client
from verifiers.v1.mcp.server import STATE_ROUTE_PARAM, STATE_SIGNATURE_PARAM, STATE_URL_PARAM, state_signature

from serving import resident_mb, until

NO_SESSION = b'{"python_session": null}'


class Channel(BaseHTTPRequestHandler):
    """Gives and takes the states of rollouts, by their routes."""

    states: dict[str, bytes]

    def do_GET(self) -> None:
        self._answer(self.states.get(self.headers["X-Verifiers-State-Route"], NO_SESSION))

    def do_PUT(self) -> None:
        self.states[self.headers["X-Verifiers-State-Route"]] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class ToolServer:
    """One that listens."""

    process: subprocess.Popen[bytes]
    url: str
    secret: str
    channel: str

    def rollout(self, name: str) -> str:
        """The address of the tools of the rollout of this name."""
        signature = state_signature(self.secret, self.channel, name)
        query = {STATE_URL_PARAM: self.channel, STATE_ROUTE_PARAM: name, STATE_SIGNATURE_PARAM: signature}
        return f"{self.url}?{urlencode(query)}"

    async def call(self, rollout: str, code: str) -> str:
        """The text that the tool answers to a rollout."""
        async with Client(self.rollout(rollout)) as client:
            result = await client.call_tool("python", {"code": code})
        assert not result.is_error, result
        text: str = result.content[0].text
        return text

    def resident_mb(self) -> float:
        """Memory of the server's own process, in MB."""
        return resident_mb(self.process.pid)


def listens(port: str) -> bool:
    """Whether a server accepts connections on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), 1).close()
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def tool_server(directory: Path, **config: Any) -> Iterator[ToolServer]:
    """The server for all rollouts of a taskset; `config` is that of the toolset."""
    handler = type("Handler", (Channel,), {"states": {}})
    channel = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=channel.serve_forever)
    thread.start()
    secret, port = secrets.token_urlsafe(), directory / "port"
    variables = {"VF_CONFIG": json.dumps(config), "VF_STATE_SECRET": secret, "MCP_PORT_FILE": str(port)}
    command = [sys.executable, "-m", "torl.components.interop.verifiers"]
    process = subprocess.Popen(command, env={**os.environ, **variables})
    try:
        # It names its port first, and listens when its pool is there.
        until(lambda: process.poll() is not None or (port.exists() and listens(port.read_text())), 60)
        assert process.poll() is None, "the tool server ended while it started"
        url = f"http://127.0.0.1:{port.read_text()}/mcp"
        yield ToolServer(process, url, secret, f"http://127.0.0.1:{channel.server_port}/state")
    finally:
        process.terminate()
        process.wait(60)
        channel.shutdown()
        thread.join()
        channel.server_close()
