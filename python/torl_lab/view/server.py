"""The HTTP server of the page: its files, its JSON interface, and the headers and checks that protect both."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from torl_lab.view.api import Api
from torl_lab.view.live import LiveState
from torl_lab.view.saved import IMPORT_MAP, INDEX, STATIC, saved_page
from torl_lab.view.sources import Target
from torl_sandbox.servers.asgi import Application, Message, Receive, Scope, Send, header
from torl_sandbox.servers.http import is_loopback
from torl_sandbox.servers.settings import ServerSettings, bound_socket, exit_at_sigterm
from torl_sandbox.servers.uvicorn_server import listen


def application(state: LiveState, token: str | None = None) -> Application:
    """Return the ASGI application.

    Args:
        state: State of all targets, which the application starts and closes.
        token: Token that requests of the interface must have; none if unset.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            await state.start()
            yield
        finally:
            await state.close()

    async def index(_: Request) -> Response:
        return Response(INDEX, media_type="text/html")

    async def saved(_: Request) -> Response:
        """Return the file into which the page writes its answers (`static/export.js`)."""
        return Response(saved_page(None), media_type="text/plain")

    pages = [Route("/", index), Route("/saved", saved), Mount("/static", StaticFiles(directory=STATIC))]
    app: Application = Starlette(routes=[*pages, *Api(state).routes()], lifespan=lifespan)
    return SecureHeaders(RequireToken(app, token), content_policy())


def content_policy() -> str:
    """Return the content security policy of the page: its own files, and its import map by its hash.

    Scripts cannot parse text as HTML or as code (`require-trusted-types-for`), so that text of models stays text.
    """
    digest = base64.b64encode(hashlib.sha256(IMPORT_MAP.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


class SecureHeaders:
    """An ASGI application that adds headers to each response: the policy, and no use by other pages."""

    def __init__(self, app: Application, policy: str) -> None:
        """Wrap an application whose pages have a content security policy."""
        self._app = app
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-cache"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in self._headers}
                kept = [each for each in message.get("headers", ()) if each[0].lower() not in names]
                message = {**message, "headers": [*kept, *self._headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RequireToken:
    """An ASGI application that answers requests of the interface only with the token."""

    def __init__(self, app: Application, token: str | None) -> None:
        """Wrap an application. Without a token, all requests are answered."""
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        is_open = self._token is None or scope["type"] != "http" or not scope["path"].startswith("/api/")
        sent = "" if is_open else header(scope, b"authorization") or ""
        if is_open or hmac.compare_digest(sent.encode(), f"Bearer {self._token}".encode()):
            await self._app(scope, receive, send)
        else:
            error = {"error": "the token is missing or wrong: open the address that torl view printed"}
            await JSONResponse(error, 401)(scope, receive, send)


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
