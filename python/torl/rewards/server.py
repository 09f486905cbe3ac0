"""The grader behind HTTP: POST /grade with a pair, or a list of pairs; GET /v1/ping answers "pong"."""

import asyncio
import json
from typing import Any

from torl.errors import RewardError
from torl.rewards.grader import Grader

_MAX_BYTES = 16 << 20
_MAX_PAIRS = 10_000


async def serve(grader: Grader, host: str, port: int) -> None:
    """Answer until cancelled. Prints the address as JSON when it listens.

    Raises:
        RewardError: the grader is broken, or the address cannot be had.
    """
    from aiohttp import web

    async def grade(request: web.Request) -> web.Response:
        try:
            asked = json.loads(await request.read())
            pairs = [(each["reference"], each["answer"]) for each in (asked if isinstance(asked, list) else [asked])]
            if not all(isinstance(text, str) for pair in pairs for text in pair) or len(pairs) > _MAX_PAIRS:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            told = f'send {{"reference": text, "answer": text}}, or a list of at most {_MAX_PAIRS}'
            return web.json_response({"error": told}, status=400)
        try:
            verdicts = await grader.grade_all(pairs)
        except RewardError as error:
            return web.json_response({"error": str(error)}, status=503)
        told_all: list[dict[str, Any]] = [{"correct": each.correct, "failure": each.failure} for each in verdicts]
        return web.json_response(told_all if isinstance(asked, list) else told_all[0])

    async def ping(_: web.Request) -> web.Response:
        return web.Response(text="pong")

    application = web.Application(client_max_size=_MAX_BYTES)
    application.add_routes([web.post("/grade", grade), web.get("/v1/ping", ping)])
    runner = web.AppRunner(application)
    async with grader:
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            print(json.dumps({"host": host, "port": runner.addresses[0][1]}), flush=True)
            await asyncio.Event().wait()
        except OSError as error:
            raise RewardError(f"{host}:{port}: cannot be listened on: {error.strerror}") from error
        finally:
            await runner.cleanup()
