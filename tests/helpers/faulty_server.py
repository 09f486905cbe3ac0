"""A SandboxFusion server that fails on request, for tests of its clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def result(stdout: str = "", stderr: str = "", code: int | None = 0, status: str = "Finished") -> dict[str, Any]:
    """A `run_result`."""
    return {"status": status, "execution_time": 0.01, "return_code": code, "stdout": stdout, "stderr": stderr}


def says(content: Any, status: int = 200, **headers: str) -> Reply:
    """An answer: JSON, or unchanged text."""

    async def reply(_: web.Request) -> web.StreamResponse:
        if isinstance(content, str):
            return web.Response(status=status, text=content, headers=headers)
        return web.json_response(content, status=status, headers=headers)

    return reply


def ran(**fields: Any) -> Reply:
    """An outcome."""
    found = result(**fields)
    ended_well = found["return_code"] == 0
    return says({"status": "Success" if ended_well else "Failed", "message": "", "run_result": found, "files": {}})


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """No answer: the connection is closed."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hangs_up_halfway(request: web.Request) -> web.StreamResponse:
    """The beginning of an answer."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"status": "Success"')
    assert request.transport is not None
    request.transport.close()
    return response


async def hangs(request: web.Request) -> web.StreamResponse:
    """No answer for a minute."""
    await asyncio.sleep(60)
    return web.Response()


@dataclass
class FaultyServer:
    """Answers with the replies in order, and then repeats the last of them."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The handler of `/run_code`."""
        self.asked.append(await request.json())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            return await reply(request)
        finally:
            self.open -= 1


@asynccontextmanager
async def faulty_server(*replies: Reply) -> AsyncIterator[FaultyServer]:
    """A server on the loopback interface."""
    server = FaultyServer(replies=list(replies))
    app = web.Application()
    app.router.add_post("/run_code", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
