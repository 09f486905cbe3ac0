"""Protocol sessions of MCP clients up to version 2025-11-25, of which the oldest idle ones are closed.

Clients often leave without closing their session. The SDK refuses new ones when there are too many.
"""

from collections import Counter, OrderedDict

from torl_sandbox.servers.asgi import Application, Message, Receive, Scope, Send, header

_SESSION = b"mcp-session-id"


class ProtocolSessions:
    """An ASGI application that closes the least recently used session when there are too many."""

    def __init__(self, app: Application, maximum: int) -> None:
        """Wrap the SDK's application."""
        self._app = app
        self._maximum = maximum
        self._sessions: OrderedDict[str, None] = OrderedDict()  # by last use
        self._requests: Counter[str] = Counter()  # pending ones of each session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = header(scope, _SESSION)
        if name is None:
            await self._app(scope, receive, self._registering(send))
            await self._close_oldest(scope)
            return
        self._requests[name] += 1
        try:
            await _complete(self._app, scope, receive, send)
        finally:
            self._requests[name] -= 1
            if not self._requests[name]:
                del self._requests[name]
            if name in self._sessions:
                self._sessions.move_to_end(name)

    def _registering(self, send: Send) -> Send:
        """Note the session that a response opens."""

        async def register(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                name = next((value.decode("latin-1") for key, value in message["headers"] if key == _SESSION), None)
                if name is not None:
                    self._sessions[name] = None
            await send(message)

        return register

    async def _close_oldest(self, scope: Scope) -> None:
        """Close idle sessions above the maximum as their clients would, with requests like that of `scope`."""
        excess = len(self._sessions) - self._maximum
        if excess <= 0:
            return
        idle = [name for name in self._sessions if name not in self._requests]
        for name in idle[:excess]:
            del self._sessions[name]
            headers = [pair for pair in scope["headers"] if pair[0] == b"host"]
            request = {**scope, "method": "DELETE", "headers": [*headers, (_SESSION, name.encode())]}
            await self._app(request, _end, _drop)


async def _complete(app: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle a request, and end its response: at SIGTERM, the SDK leaves event streams without an end."""
    unfinished = False

    async def watch(message: Message) -> None:
        nonlocal unfinished
        unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
        await send(message)

    await app(scope, receive, watch)
    if unfinished:
        await send({"type": "http.response.body", "body": b""})


async def _end() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(message: Message) -> None:
    pass
