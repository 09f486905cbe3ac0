"""The JSON interface: the parameters and bodies of requests, and the responses."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from torl.base.errors import TorlError
from torl.base.inputs import parse_json
from torl.base.runtime.processes.children import ChildExitedError
from torl_lab.view.saved import ascii_json
from torl_lab.view.selection import FLAGS, NUMBERS, Query


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


_TRUTH: Mapping[str, bool] = {"1": True, "0": False}


class Parameters(Protocol):
    """The parameters of a request, some of which may occur several times."""

    def getlist(self, key: str) -> list[str]:
        """Return all values of a parameter."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the parameters."""
        ...


def parse_query(parameters: Parameters, others: Iterable[str] = ()) -> Query:
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
    for name in parameters.keys():  # noqa: SIM118 - not a mapping
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}")
    problems = parameters.getlist("problem")
    return Query(
        sets=tuple(parameters.getlist("set")),
        flags={name: _truth(name, values[-1]) for name in FLAGS if (values := parameters.getlist(name))},
        ranges={name: parse_range(name, values[-1]) for name in NUMBERS if (values := parameters.getlist(name))},
        statuses=tuple(parameters.getlist("status")),
        finishes=tuple(parameters.getlist("finish")),
        signs=tuple(parameters.getlist("sign")),
        problem=problems[-1] if problems else None,
        problem_text=["", *parameters.getlist("about")][-1].strip(),
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


def parse_number(parameters: Parameters, name: str, default: int, maximum: int) -> int:
    """Return a parameter that is a whole number from 0 to `maximum`.

    Raises:
        ValueError: The value is not such a number.
    """
    values = parameters.getlist(name)
    if not values:
        return default
    if not values[-1].isdecimal() or len(values[-1]) > 12 or int(values[-1]) > maximum:
        raise ValueError(f"{name} = {values[-1]!r} must be a whole number from 0 to {maximum}")
    return int(values[-1])


def _truth(name: str, text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError(f"{name} = {text!r} must be 1 or 0")
    return _TRUTH[text]
