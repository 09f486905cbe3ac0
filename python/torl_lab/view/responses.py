"""Responses of the JSON interface, and the parts of its requests."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from torl.base.errors import TorlError
from torl.base.inputs import parse_json
from torl.base.runtime.processes.children import ChildExitedError
from torl_lab.view.saved import ascii_json


class CannotReplayError(Exception):
    """A call cannot be run again. The message has the reason."""


_CHANGE_HEADER: Final = "x-torl-view"
"""Header that requests with effects have. A page of another origin cannot send it."""


def call_number(body: dict[str, Any]) -> int:
    """Return the number of a call in the body of a request.

    Raises:
        ValueError: The number is missing.
    """
    number = body.get("call")
    if not isinstance(number, int):
        raise ValueError("call must be a whole number")
    return number


def required(request: Request, name: str) -> str:
    """Return a parameter of a request.

    Raises:
        ValueError: The parameter is missing.
    """
    value = request.query_params.get(name)
    if not value:
        raise ValueError(f"the parameter {name!r} is missing")
    return value


async def read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request with effects.

    Raises:
        PermissionError: The request lacks the header that only the viewer's own page sends.
        ValueError: The body is not a JSON object.
    """
    if request.headers.get(_CHANGE_HEADER) != "1":
        raise PermissionError(f"the header {_CHANGE_HEADER} is missing")
    try:
        body = parse_json(await request.body())
    except ValueError as error:
        raise ValueError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise ValueError("expected a JSON object")
    return body


def as_download(text: str) -> Response:
    """Return a line as a file that the browser saves."""
    headers = {"Content-Disposition": 'attachment; filename="trajectory.json"'}
    return Response(text.encode(), media_type="application/json", headers=headers)


def in_thread(
    work: Callable[[Request], Any], response: Callable[[Any], Response] | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of work that blocks, whose result becomes a response, by default as JSON."""

    async def handle(request: Request) -> Response:
        return (response or AsciiJson)(await run_in_threadpool(work, request))

    return answering(handle)


_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (CannotReplayError, 409),
    (PermissionError, 403),
    (LookupError, 404),
    (ValueError, 400),
    (TypeError, 422),
    (TorlError, 422),
    (OSError, 422),
    (sqlite3.Error, 503),
    (ChildExitedError, 500),
)


def answering(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that answers errors with their message."""

    async def handle(request: Request) -> Response:
        try:
            return await work(request)
        except asyncio.CancelledError:
            raise
        except tuple(kind for kind, _ in _STATUSES) as error:
            status = next(status for kind, status in _STATUSES if isinstance(error, kind))
            return AsciiJson({"error": str(error.args[0] if error.args else error)}, status)

    return handle


class AsciiJson(JSONResponse):
    """JSON of any content (`saved.ascii_json`)."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of `content`."""
        return ascii_json(content).encode("ascii")
