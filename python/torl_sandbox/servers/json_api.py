"""Handlers of JSON requests, with limits on their number, size and time. Errors have the format of FastAPI."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from torl_sandbox.servers.admission import Admission, OverloadedError
from torl_sandbox.servers.asgi import Application, Receive, Scope, Send
from torl_sandbox.servers.settings import ServerSettings

JSON = "application/json"

Work = Callable[[bytes], Awaitable[object]]


class JsonApi:
    """Builds the handlers of a server, which share its limits."""

    def __init__(
        self, settings: ServerSettings, admission: Admission, count_response: Callable[[str, int], object]
    ) -> None:
        """Set the limits, and the function that counts a response by path and status."""
        self._admission = admission
        self._max_bytes = settings.body_mib << 20
        self._timeout_seconds = settings.idle_timeout_seconds
        self._count_response = count_response

    def handler(self, work: Work) -> Application:
        """Return an ASGI application that answers a body with the result of `work`, as JSON.

        A `ValueError` of `work` is answered with 422, also a validation error of pydantic; an `OverloadedError` with
        429, and a `RefusedError` with its status.
        """
        return _Handler(self, work)

    async def answer(self, work: Work, request: Request, send: Send) -> None:
        """Answer a request, which is pending until the client has received the response."""
        try:
            with self._admission.admit(self._declared_size(request)):
                response = json_response(200, await work(await self._body(request)))
                self._count_response(request.url.path, 200)
                await response(request.scope, request.receive, send)
                return
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            response = self._refusal(request, 422, found)
        except ValueError as error:  # invalid files, or an invalid problem
            response = self._refusal(request, 422, str(error))
        except OverloadedError as overload:
            response = self._refusal(request, 429, str(overload))
        except RefusedError as refusal:
            response = self._refusal(request, refusal.status, str(refusal))
        await response(request.scope, request.receive, send)

    def _declared_size(self, request: Request) -> int:
        kind = request.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RefusedError(415, f"the content type must be {JSON}, got {kind}")
        size = int(request.headers.get("content-length", self._max_bytes))
        if size > self._max_bytes:
            raise RefusedError(413, f"the request has {size} bytes; the maximum is {self._max_bytes}")
        return size

    async def _body(self, request: Request) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await request.body()
        except TimeoutError as error:
            raise RefusedError(408, f"the request did not arrive within {self._timeout_seconds:g} s") from error

    def _refusal(self, request: Request, status: int, detail: object) -> Response:
        self._count_response(request.scope["path"], status)
        return json_response(status, {"detail": detail})


class _Handler:
    """The ASGI application of a handler. Starlette calls a function with a request only, and sends its response."""

    def __init__(self, api: JsonApi, work: Work) -> None:
        self._api = api
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api.answer(self._work, Request(scope, receive), send)


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, detail: str) -> None:
        """Set the status and the text of the response."""
        super().__init__(detail)
        self.status = status


def json_response(status: int, content: object) -> Response:
    """Return a JSON response, with `Retry-After` if the server is overloaded."""
    headers = {"Retry-After": "1"} if status == 429 else None
    return Response(json.dumps(content), status, headers, JSON)
