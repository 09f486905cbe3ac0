"""A server that speaks as OpenAI's does and says what a test wants."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Reply = Callable[[str], Any]


class JudgeServer:
    """Answers each prompt as `reply` says: a text, a status, or a whole response."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.prompts: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        prompt = (await request.json())["messages"][0]["content"]
        self.prompts.append(prompt)
        text = self.reply(prompt)
        if isinstance(text, web.Response):
            return text
        if isinstance(text, int):
            return web.Response(status=text)
        return web.json_response({"choices": [{"message": {"content": text}}]})


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[JudgeServer]:
    """The server while it serves."""
    judge = JudgeServer(reply)
    application = web.Application()
    application.add_routes([web.post("/v1/chat/completions", judge.answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    judge.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield judge
    await runner.cleanup()
