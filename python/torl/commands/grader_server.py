"""The grader's HTTP server: POST /grade with a pair or a list of pairs; GET /v1/ping answers "pong"."""

from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from torl.base.errors import RewardError
from torl.components.grading.grader import Grader
from torl_sandbox.servers.admission import Admission
from torl_sandbox.servers.json_api import JsonApi, RefusedError
from torl_sandbox.servers.settings import ServerSettings, bound_socket
from torl_sandbox.servers.uvicorn_server import listen

_MAX_PAIRS = 10_000
_MAX_REQUESTS = 64  # pending ones, each with at most 10,000 pairs


class Pair(BaseModel):
    """A reference and an answer to compare with it."""

    reference: str
    answer: str


_PAIRS: TypeAdapter[Pair | list[Pair]] = TypeAdapter(Pair | Annotated[list[Pair], Field(max_length=_MAX_PAIRS)])


def serve(grader: Grader, settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        grader: Grader, not started.
        settings: Address and limits.

    Raises:
        RewardError: The grader failed, or the address is unavailable.
    """

    async def grade(body: bytes) -> object:
        content = _PAIRS.validate_json(body)
        pairs = content if isinstance(content, list) else [content]
        try:
            verdicts = await grader.grade_all((pair.reference, pair.answer) for pair in pairs)
        except RewardError as error:
            raise RefusedError(503, str(error)) from error
        results = [{"correct": each.correct, "failure": each.failure} for each in verdicts]
        return results if isinstance(content, list) else results[0]

    async def ping(_: Request) -> Response:
        return PlainTextResponse("pong")

    api = JsonApi(settings, Admission(_MAX_REQUESTS, settings.max_pending_mib << 20), lambda path, status: None)
    app = Router([Route("/grade", api.handler(grade), methods=["POST"]), Route("/v1/ping", ping)])
    try:
        with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener:
            listen(app, settings, listener, around=grader)
    except OSError as error:
        raise RewardError(str(error)) from error
