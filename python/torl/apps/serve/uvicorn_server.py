"""An ASGI application behind a door's address, bounded."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from torl.apps.serve.settings import ServerSettings, address_of
from torl.errors import SandboxError

_BACKLOG = 1024  # connections that wait to be accepted
_NOTHING = object()


def listen(app: Any, settings: ServerSettings, listener: socket.socket, path: str = "") -> None:
    """Serve until SIGTERM or SIGINT; says where, with `path` behind the address."""
    config = uvicorn.Config(
        app,
        http=_bounded_protocol(settings.idle_timeout_seconds, settings.max_connections()),
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(settings.idle_timeout_seconds),
        timeout_graceful_shutdown=int(settings.grace_period_seconds),
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


def _bounded_protocol(seconds: float, most: int) -> type[asyncio.Protocol]:
    """uvicorn's protocol, for so many connections: one more is closed as soon as it comes.

    A client that owes the rest of a request is cut off after `seconds`, or twice as long behind another one; so is one
    that does not take its answer. uvicorn waits for both forever.
    """

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        # What the client owed when that was looked at last: the rest of this request, or the one behind it.
        _owed: Any = None
        _looking: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
                return
            self._looking = self.loop.call_later(seconds, self._look)

        def handle_websocket_upgrade(self, *event: Any) -> None:
            self._forget(self._looking)  # a WebSocket has pings of its own
            super().handle_websocket_upgrade(*event)

        def _look(self) -> None:
            cycle = self.cycle
            if cycle is not None and not cycle.more_body and not cycle.response_complete:
                self._owed = _NOTHING
            elif cycle is self._owed:
                self.transport.abort()
                return
            else:
                self._owed = cycle
            self._looking = self.loop.call_later(seconds, self._look)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._writing = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._forget(self._writing)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget(self._looking)
            self._forget(self._writing)

        @staticmethod
        def _forget(timer: asyncio.TimerHandle | None) -> None:
            if timer is not None:
                timer.cancel()

    return Bounded
