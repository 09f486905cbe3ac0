"""Search on a server that speaks as Search-R1's does, and on one that does not, or no longer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from torl.base.component import RunContext
from torl.base.errors import ToolUnavailableError
from torl.components.tools import BoundedTool, RetrievalTool, ToolLimits
from torl.components.tools.search import RetrievalOptions

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    """The address of a server that answers with `handler`."""
    app = web.Application()
    app.router.add_post("/retrieve", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/retrieve"
    finally:
        await runner.cleanup()


def documents(*contents: Any) -> dict[str, Any]:
    """An answer for one query, as the server's `retrieve_endpoint` gives it with scores."""
    scored = [{"document": {"id": "1", "contents": each}, "score": 0.5} for each in contents]
    return {"result": [scored]}


async def test_queries_and_answers_have_the_servers_form() -> None:
    requests: list[Any] = []

    async def retrieve(request: web.Request) -> web.Response:
        requests.append(await request.json())
        return web.json_response(documents('"Paris"\nThe capital.', '"Rome"\nAnother.'))

    async with served(retrieve) as url:
        tool = RetrievalTool(RetrievalOptions(url=url, top_k=2))
        await tool.start(RunContext())
        outcome = await tool.session(0).call({"query": "capital of France"})
        assert (await tool.call({})).error == "TypeError"
        await tool.close()
    assert outcome.text == 'Doc 1(Title: "Paris") The capital.\nDoc 2(Title: "Rome") Another.'
    assert requests[1:] == [{"queries": ["capital of France"], "topk": 2, "return_scores": True}]
    assert requests[0].keys() == requests[1].keys()  # the question at the start


@pytest.mark.parametrize(("given", "shown"), [(0, 0), (1, 1), (5, 2)])
async def test_at_most_top_k_passages_are_shown(given: int, shown: int) -> None:
    async def retrieve(_: web.Request) -> web.Response:
        return web.json_response(documents(*(f"{number}\n." for number in range(given))))

    async with served(retrieve) as url:
        tool = RetrievalTool(RetrievalOptions(url=url, top_k=2))
        await tool.start(RunContext())
        outcome = await tool.session(0).call({"query": "?"})
        await tool.close()
    lines = [f"Doc {number + 1}(Title: {number}) ." for number in range(shown)]
    assert (outcome.text, outcome.details) == ("\n".join(lines) or "Nothing was found.", {"passages": shown})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: web.Response(status=500, text="CUDA out of memory"), "HTTP 500: CUDA out of memory"),
        (lambda: web.Response(status=404, text="nothing here"), "HTTP 404"),
        (lambda: web.Response(text="[" * 100_000), "does not answer as a retrieval server"),
        (lambda: web.Response(text="<html>"), "does not answer as a retrieval server"),
        (lambda: web.json_response({"result": []}), "no list of documents with contents for each query"),
        (lambda: web.json_response({"result": [["text"]]}), "no list of documents"),
        (lambda: web.json_response([1]), "no list of documents"),
        (lambda: web.json_response(documents(3)), "contents that are not text"),
    ],
)
async def test_reply_without_passages_is_an_error(answer: Callable[[], web.Response], message: str) -> None:
    async def retrieve(_: web.Request) -> web.Response:
        return answer()

    async with served(retrieve) as url:
        tool = RetrievalTool(RetrievalOptions(url=url))
        with pytest.raises(ToolUnavailableError, match=message):
            await tool.start(RunContext())
        await tool.close()


async def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl.components.tools.retry.STARTUP_TIMEOUT_SECONDS", 0.05)
    request = asyncio.Event()

    async def retrieve(_: web.Request) -> web.Response:
        await request.wait()
        return web.json_response(documents())

    async with served(retrieve) as url:
        tool = RetrievalTool(RetrievalOptions(url=url))
        with pytest.raises(ToolUnavailableError, match=f"{url} did not reply within 0.05 s"):
            await tool.start(RunContext())
        await tool.close()
        request.set()


async def test_unavailable_server_is_retried_and_then_abandoned() -> None:
    broken = 0

    async def retrieve(request: web.Request) -> web.Response:
        nonlocal broken
        if broken:
            broken -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response(documents("a\nb"))

    async with served(retrieve) as url:
        bounds = ToolLimits(retries=2)
        tool = BoundedTool("search", RetrievalTool(RetrievalOptions(url=url)), bounds)
        await tool.start(RunContext())
        broken = 2
        assert (await tool.session(0).call({"query": "x"})).text == "Doc 1(Title: a) b"
        assert tool.metrics()["retried"] == 2
    with pytest.raises(
        ToolUnavailableError, match=r"'search' returned no outcome in 3 attempts; the last error: http.*Connect"
    ):
        await tool.session(0).call({"query": "x"})
    await tool.close()


def test_an_address_begins_as_one() -> None:
    with pytest.raises(ValidationError, match="must begin with http:// or https://"):
        RetrievalOptions(url="localhost:8000/retrieve")
