"""The grader's HTTP server: POST /grade with a pair or a list of pairs; GET /v1/ping answers "pong"."""

from collections.abc import AsyncIterator
from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, Field, TypeAdapter

from torl.base.errors import RewardError
from torl.components.grading.grader import Grader
from torl_sandbox.servers.admission import Admission
from torl_sandbox.servers.aiohttp_server import listen
from torl_sandbox.servers.json_api import JsonApi, RefusedError
from torl_sandbox.servers.settings import ServerSettings, bound_socket

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
    try:
        with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener:
            listen(_application(grader, settings), settings, listener)
    except OSError as error:
        raise RewardError(str(error)) from error


def _application(grader: Grader, settings: ServerSettings) -> web.Application:
    async def run_grader(_: web.Application) -> AsyncIterator[None]:
        async with grader:
            yield

    async def grade(body: bytes) -> object:
        content = _PAIRS.validate_json(body)
        pairs = content if isinstance(content, list) else [content]
        try:
            verdicts = await grader.grade_all((pair.reference, pair.answer) for pair in pairs)
        except RewardError as error:
            raise RefusedError(503, str(error)) from error
        results = [{"correct": each.correct, "failure": each.failure} for each in verdicts]
        return results if isinstance(content, list) else results[0]

    async def ping(_: web.Request) -> web.Response:
        return web.Response(text="pong")

    application = web.Application(client_max_size=settings.body_mib << 20)
    application.cleanup_ctx.append(run_grader)
    api = JsonApi(settings, Admission(_MAX_REQUESTS, settings.max_pending_mib << 20), lambda path, status: None)
    application.add_routes([web.post("/grade", api.handler(grade)), web.get("/v1/ping", ping)])
    return application
