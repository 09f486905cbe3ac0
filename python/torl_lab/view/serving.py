"""Serve the page until the process is stopped."""

from collections.abc import Sequence
from pathlib import Path

from torl_lab.view.live import LiveState
from torl_lab.view.server import application
from torl_lab.view.sources import Target
from torl_sandbox.servers.http import is_loopback
from torl_sandbox.servers.settings import ServerSettings, bound_socket, exit_at_sigterm
from torl_sandbox.servers.uvicorn_server import listen


def serve(targets: Sequence[Target], cache: Path | None, host: str, port: int, token: str) -> None:
    """Serve until SIGTERM or SIGINT. Prints the address, with the token in its fragment if it is not a loopback one.

    Raises:
        SandboxError: The server does not start.
        OSError: The address is unavailable.
    """
    exit_at_sigterm()
    settings = ServerSettings(host=host, port=port, body_mib=1, max_pending_requests=64, grace_period_seconds=1)
    with bound_socket(host, port, settings.idle_timeout_seconds) as listener:
        needed = None if is_loopback(listener.getsockname()[0]) else token
        state = LiveState(targets, cache)
        listen(application(state, needed), settings, listener, f"/#token={needed}" if needed else "/", state.end)
