"""HTTP handlers of JSON requests, with limits on their number, size and time. Errors have the format of FastAPI."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import ValidationError

from torl_sandbox.servers.admission import Admission, OverloadedError
from torl_sandbox.servers.aiohttp_server import send
from torl_sandbox.servers.settings import ServerSettings

JSON = "application/json"


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

    def handler(self, work: Callable[[bytes], Awaitable[object]]) -> Handler:
        """Return a handler that answers a body with the result of `work`, as JSON.

        A `ValueError` of `work` is answered with 422, also a validation error of pydantic; an `OverloadedError` with
        429, and a `RefusedError` with its status.
        """

        async def handle(request: web.Request) -> web.Response:
            try:
                with self._admission.admit(self._declared_size(request)):
                    response = json_response(200, await work(await self._body(request)))
                    self._count_response(request.path, 200)
                    # The request is pending until the response was sent.
                    await send(request, response, self._timeout_seconds)
                    return response
            except ValidationError as error:
                return self._refuse(
                    request, 422, error.errors(include_url=False, include_context=False, include_input=False)
                )
            except ValueError as error:  # invalid files, or an invalid problem
                return self._refuse(request, 422, str(error))
            except OverloadedError as overload:
                return self._refuse(request, 429, str(overload))
            except RefusedError as refusal:
                return self._refuse(request, refusal.status, str(refusal))

        return handle

    def _declared_size(self, request: web.Request) -> int:
        if request.content_type != JSON:
            raise RefusedError(415, f"the content type must be {JSON}, got {request.content_type}")
        size = self._max_bytes if request.content_length is None else request.content_length
        if size > self._max_bytes:
            raise RefusedError(413, f"the request has {size} bytes; the maximum is {self._max_bytes}")
        return size

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await request.read()
        except web.RequestPayloadError as error:
            raise RefusedError(400, str(error)) from error
        except TimeoutError as error:
            raise RefusedError(408, f"the request did not arrive within {self._timeout_seconds:g} s") from error

    def _refuse(self, request: web.Request, status: int, detail: object) -> web.Response:
        self._count_response(request.path, status)
        return json_response(status, {"detail": detail})


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, detail: str) -> None:
        """Set the status and the text of the response."""
        super().__init__(detail)
        self.status = status


def json_response(status: int, content: object) -> web.Response:
    """Return a JSON response, with `Retry-After` if the server is overloaded."""
    headers = {"Retry-After": "1"} if status == 429 else None
    return web.Response(status=status, body=json.dumps(content).encode(), content_type=JSON, headers=headers)
