"""The grader's HTTP server: POST /grade with a pair or a list of pairs; GET /v1/ping answers "pong"."""

import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from torl.apps.serve.aiohttp_server import listen
from torl.apps.serve.settings import ServerSettings, bound_socket
from torl.errors import RewardError
from torl.rewards.grader import Grader

_MAX_PAIRS = 10_000


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
    except (OSError, OverflowError) as error:
        raise RewardError(f"cannot listen on {settings.host}:{settings.port}: {error}") from error


def _application(grader: Grader, settings: ServerSettings) -> web.Application:
    async def run_grader(_: web.Application) -> AsyncIterator[None]:
        async with grader:
            yield

    async def grade(request: web.Request) -> web.Response:
        try:
            content = json.loads(await request.read())
            items = content if isinstance(content, list) else [content]
            pairs = [(item["reference"], item["answer"]) for item in items]
            if not all(isinstance(text, str) for pair in pairs for text in pair) or len(pairs) > _MAX_PAIRS:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            message = f'the body must be {{"reference": text, "answer": text}} or a list of at most {_MAX_PAIRS}'
            return web.json_response({"error": message}, status=400)
        try:
            verdicts = await grader.grade_all(pairs)
        except RewardError as error:
            return web.json_response({"error": str(error)}, status=503)
        results: list[dict[str, Any]] = [{"correct": each.correct, "failure": each.failure} for each in verdicts]
        return web.json_response(results if isinstance(content, list) else results[0])

    async def ping(_: web.Request) -> web.Response:
        return web.Response(text="pong")

    application = web.Application(client_max_size=settings.body_mib << 20)
    application.cleanup_ctx.append(run_grader)
    application.add_routes([web.post("/grade", grade), web.get("/v1/ping", ping)])
    return application
