"""Sessions that clients of servers may abandon, of which the least recently used ones are closed.

`SessionStore` has the sandbox's, by name. `ProtocolSessions` has the ones of MCP's protocol up to version 2025-11-25,
whose clients often leave without closing theirs; the SDK refuses new ones when there are too many.
"""

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from torl_sandbox.servers.asgi import Application, Message, Receive, Scope, Send, header
from torl_sandbox.servers.settings import SessionSettings
from torl_sandbox.session import Session

_SESSION = b"mcp-session-id"


class SessionStore:
    """Sessions that clients refer to by name, and may abandon. Thread-safe.

    Sessions expire after a time without use. The least recently used sessions are evicted if there are too many or
    their states are too large. At least one session is kept.
    """

    def __init__(self, settings: SessionSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_sessions = max(settings.max_sessions, 1)
        self._max_bytes = settings.max_session_mib << 20
        self._ttl_seconds = settings.session_ttl_seconds
        self._clock = clock
        self._sessions: OrderedDict[str, tuple[Session, float]] = OrderedDict()  # by last use
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, session: Session) -> str:
        """Add a session and return its name, which cannot be guessed."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._sessions[name] = (session, self._clock())
            self.evict()
        return name

    def get(self, name: str) -> Session | None:
        """Return a session and mark it as used. None if it does not exist or is no longer stored."""
        with self._lock:
            self.evict()
            found = self._sessions.get(name)
            if found is None:
                return None
            self._sessions[name] = (found[0], self._clock())
            self._sessions.move_to_end(name)
            return found[0]

    def drop(self, name: str) -> None:
        """Remove a session, if it exists."""
        with self._lock:
            self._sessions.pop(name, None)

    def evict(self) -> None:
        """Remove sessions beyond the limits. Call it when the state of a session has grown."""
        with self._lock:
            oldest = self._clock() - self._ttl_seconds
            total = sum(session.state_bytes for session, _ in self._sessions.values())
            while self._sessions:
                session, last_use = next(iter(self._sessions.values()))
                count = len(self._sessions)
                within_limits = count <= self._max_sessions and (total <= self._max_bytes or count == 1)
                if last_use >= oldest and within_limits:
                    break
                self._sessions.popitem(last=False)
                total -= session.state_bytes


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
