"""Clients that go away: what is under way for one is cancelled."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_GONE = ("http.disconnect", "websocket.disconnect")
_AHEAD = 4  # messages that are read before the application asks for them
_LINGERING_BYTES = 64 << 20  # of a refused request that are read and dropped


class CancelOnDisconnect:
    """An ASGI application whose work for a connection is cancelled when the client closes it.

    A server tells of it by a message that an application hears when it asks for one, and one that works does not ask.
    Bodies of more than `most_bytes` are answered with 413.
    """

    def __init__(self, app: Application, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and _declared_bytes(scope) > self._max_bytes:
            await _refuse(receive, send)
            return
        messages: asyncio.Queue[Message] = asyncio.Queue(_AHEAD)
        work = asyncio.ensure_future(self._app(scope, messages.get, send))
        listening = asyncio.ensure_future(_pass_on(receive, messages, self._max_bytes))
        await asyncio.wait((work, listening), return_when=asyncio.FIRST_COMPLETED)
        unanswered = not work.done() and not listening.cancelled() and listening.result()
        for task in (listening, work):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await work
        if unanswered:
            await _refuse(receive, send)


async def _pass_on(receive: Receive, messages: "asyncio.Queue[Message]", max_bytes: int) -> bool:
    """Hand messages on until the client goes away: False; or has sent too much of one body: True."""
    size = 0
    while True:
        message = await receive()
        if message["type"] in _GONE:
            return False
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > max_bytes:
                return True
        await messages.put(message)


def _declared_bytes(scope: MutableMapping[str, Any]) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


async def _refuse(receive: Receive, send: Send) -> None:
    """Answer, and close when the client has sent what it is sending: one whose connection breaks reads no answer."""
    text = b'{"detail": "the request is too large"}'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": True})
    left = _LINGERING_BYTES
    while left > 0:
        message = await receive()
        if message["type"] in _GONE or not message.get("more_body"):
            break
        left -= len(message.get("body", b""))
    await send({"type": "http.response.body", "body": b""})
