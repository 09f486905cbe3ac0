"""An ASGI application behind a door's address, bounded."""

import socket
from typing import Any

import uvicorn

from torl.errors import SandboxError
from torl.sandbox.serve.settings import DoorSettings, address_of

_BACKLOG = 1024  # connections that wait to be accepted


def listen(app: Any, settings: DoorSettings, listener: socket.socket, path: str = "") -> None:
    """Serve until SIGTERM or SIGINT; says where, with `path` behind the address."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        # The doors refuse in their protocol's own words; this is for who only opens connections.
        limit_concurrency=2 * settings.queue + _BACKLOG,
        timeout_keep_alive=int(settings.idle_seconds),
        timeout_graceful_shutdown=int(settings.grace_seconds),
        ws_max_size=settings.body_mib << 20,
    )
    _Server(config, f"{address_of(listener)}{path}").run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            raise SandboxError("the door did not open: see above")
        print(f"listening on {self._address}", flush=True)
