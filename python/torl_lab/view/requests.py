"""The JSON interface: the parameters and bodies of requests, and the responses."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from torl.base.errors import TorlError
from torl.base.inputs import parse_json
from torl.base.runtime.processes.children import ChildExitedError
from torl_lab.view.facets import FLAGS
from torl_lab.view.saved import ascii_json
from torl_lab.view.selection import NUMBERS, Query

_CHANGE_HEADER: Final = "x-torl-view"
"""Header that requests with effects have. A page of another origin cannot send it."""


class CannotReplayError(Exception):
    """A call cannot be run again. The message has the reason."""


# --- parameters and bodies ----------------------------------------------------------------------------------


def parse_query(parameters: QueryParams, others: Iterable[str] = ()) -> Query:
    """Return the query of a request.

    `set`, `status`, `finish` and `sign` may occur several times; a flag is 1 or 0; a range is "2..5", with either end
    left out, or one number; `problem` is an id or a key, `about` a text in the problem, and `words` are in the
    response.

    Args:
        parameters: Parameters of the request.
        others: Names of parameters that are not part of the query.

    Raises:
        ValueError: A parameter is unknown or has an invalid value.
    """
    known = {"set", "status", "finish", "sign", "problem", "about", "words", *FLAGS, *NUMBERS, *others}
    for name in parameters:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}")
        if name in FLAGS and parameters[name] not in ("0", "1"):
            raise ValueError(f"{name} = {parameters[name]!r} must be 1 or 0")
    return Query(
        sets=tuple(parameters.getlist("set")),
        flags={name: parameters[name] == "1" for name in FLAGS if name in parameters},
        ranges={name: parse_range(name, parameters[name]) for name in NUMBERS if name in parameters},
        statuses=tuple(parameters.getlist("status")),
        finishes=tuple(parameters.getlist("finish")),
        signs=tuple(parameters.getlist("sign")),
        problem=parameters.get("problem"),
        problem_text=parameters.get("about", "").strip(),
        words=" ".join(parameters.getlist("words")).strip(),
    )


def parse_range(name: str, text: str) -> tuple[float | None, float | None]:
    """Return the ends of a range: "2..5", "2..", "..5" or "3".

    Raises:
        ValueError: The text is not a range.
    """
    first, separator, last = text.partition("..")
    try:
        low = float(first) if first else None
        return (low, float(last) if last else None) if separator else (low, low)
    except ValueError:
        raise ValueError(f'{name} = {text!r} must be a number or a range such as "2..5"') from None


def parse_number(parameters: QueryParams, name: str, default: int, maximum: int) -> int:
    """Return a parameter that is a whole number from 0 to `maximum`.

    Raises:
        ValueError: The value is not such a number.
    """
    text = parameters.get(name, str(default))
    if not text.isdecimal() or len(text) > 12 or int(text) > maximum:
        raise ValueError(f"{name} = {text!r} must be a whole number from 0 to {maximum}")
    return int(text)


def required(request: Request, name: str) -> str:
    """Return a parameter of a request.

    Raises:
        ValueError: The parameter is missing.
    """
    if value := request.query_params.get(name):
        return value
    raise ValueError(f"the parameter {name!r} is missing")


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


def call_number(body: dict[str, Any]) -> int:
    """Return the number of a call in the body of a request.

    Raises:
        ValueError: The number is missing.
    """
    number = body.get("call")
    if not isinstance(number, int):
        raise ValueError("call must be a whole number")
    return number


# --- responses ----------------------------------------------------------------------------------------------


class AsciiJson(JSONResponse):
    """JSON of any content (`saved.ascii_json`)."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of `content`."""
        return ascii_json(content).encode("ascii")


_STATUSES: Final[dict[type[Exception], int]] = {
    CannotReplayError: 409,
    PermissionError: 403,
    LookupError: 404,
    ValueError: 400,
    TypeError: 422,
    TorlError: 422,
    OSError: 422,
    sqlite3.Error: 503,
    ChildExitedError: 500,
}
"""The status for each kind of error; the first one that fits counts."""


def answering(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that answers errors with their message."""

    async def handle(request: Request) -> Response:
        try:
            return await work(request)
        except tuple(_STATUSES) as error:
            status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
            return AsciiJson({"error": str(error.args[0] if error.args else error)}, status)

    return handle


def in_thread(
    work: Callable[[Request], Any], response: Callable[[Any], Response] = AsciiJson
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of work that blocks, whose result becomes a response."""

    async def handle(request: Request) -> Response:
        return response(await run_in_threadpool(work, request))

    return answering(handle)


def as_download(text: str) -> Response:
    """Return a line as a file that the browser saves."""
    headers = {"Content-Disposition": 'attachment; filename="trajectory.json"'}
    return Response(text.encode(), media_type="application/json", headers=headers)
