"""Replies of servers that torl asks: one that is too large, or becomes so when decompressed, takes no memory."""

import asyncio
import json
import tempfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hub_server import using_hub
from torl.base.errors import DataError, ToolUnavailableError
from torl.base.runtime.http import client_session, read_reply
from torl.components.hub import resolve_dataset, resolve_model, stream_dataset
from torl.components.rewards.judge import JudgeClient
from torl.components.tools.mcp_connection import McpConnection
from torl.components.tools.sandbox_fusion import SandboxFusionOptions, SandboxFusionTool
from torl.components.tools.search import RetrievalOptions, RetrievalTool

MIB = 1 << 20
PLAIN = {
    "choices": [{"message": {"content": "Correct"}}],
    "result": [[{"document": {"contents": "a text"}, "score": 1.0}]],
    "status": "Success",
    "run_result": {"status": "Finished", "return_code": 0, "stdout": "", "stderr": ""},
}


async def ask_judge(url: str) -> Any:
    judge = JudgeClient(url, "model", lambda text: text, 60.0, 1)
    await judge.start()
    try:
        return await judge.ask("?")
    finally:
        await judge.close()


async def ask_fusion(url: str) -> Any:
    tool = SandboxFusionTool(SandboxFusionOptions(url=url, retries=0))
    tool._session = client_session()  # without the health check
    try:
        return await tool.run_code({})
    finally:
        await tool.close()


async def ask_search(url: str) -> Any:
    tool = RetrievalTool(RetrievalOptions(url=url))
    tool._connections = client_session()  # without the first query
    try:
        return await tool.call({"query": "?"})
    finally:
        await tool.close()


CLIENTS: dict[str, Callable[[str], Awaitable[Any]]] = {"judge": ask_judge, "fusion": ask_fusion, "search": ask_search}


@asynccontextmanager
async def serving(body: bytes, **headers: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers everything with a body, and the encodings that its clients accept."""
    accepted: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept-Encoding"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"} | headers)
        await response.prepare(request)
        await response.write(body)
        return response

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", accepted
    finally:
        await runner.cleanup()


def compressed(encoding: str) -> bytes:
    """Half a gigabyte of spaces."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 15 if encoding == "deflate" else 31)
    return b"".join(packer.compress(b" " * MIB) for _ in range(512)) + packer.flush()


def peak_mib() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


@pytest.mark.parametrize("client", CLIENTS)
async def test_plain_replies_are_read_and_nothing_else_is_accepted(client: str) -> None:
    async with serving(json.dumps(PLAIN).encode()) as (url, accepted):
        assert await CLIENTS[client](url) is not None
    assert accepted == ["identity"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_compressed_replies_are_failures_and_are_not_decompressed(client: str, encoding: str) -> None:
    async with serving(compressed(encoding), **{"Content-Encoding": encoding}) as (url, _):
        before = peak_mib()
        if client == "judge":
            assert await ask_judge(url) is None
        else:
            with pytest.raises(ToolUnavailableError, match="Content-Encoding"):
                await CLIENTS[client](url)
        assert peak_mib() - before < 50


async def test_a_reply_ends_at_the_limit() -> None:
    async with serving(b" " * 3000) as (url, _), client_session() as session:
        async with session.get(url) as response:
            assert len(await read_reply(response, 3000)) == 3000
        async with session.get(url) as response:
            with pytest.raises(aiohttp.ClientPayloadError, match="more than 2999 bytes"):
                await read_reply(response, 2999)


async def ask_mcp(url: str) -> Any:
    connection = McpConnection(f"{url}/mcp", {})
    try:
        return await connection.tools()
    finally:
        await connection.close()


async def ask_hub(url: str, name: str) -> Any:
    with tempfile.TemporaryDirectory() as cache, using_hub(url, Path(cache)):
        return await asyncio.to_thread(HUB[name], "owner/name" if name == "model" else "hf:owner/name")


HUB: dict[str, Callable[[str], Any]] = {
    "model": resolve_model,
    "dataset": lambda name: resolve_dataset(name, "train"),
    "stream": lambda name: stream_dataset(name, "train"),
}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_a_compressed_reply_of_an_mcp_server_is_not_decompressed(encoding: str, kind: str) -> None:
    async with serving(compressed(encoding), **{"Content-Encoding": encoding, "Content-Type": kind}) as (url, accepted):
        before = peak_mib()
        with pytest.raises(ToolUnavailableError, match="Content-Encoding"):
            await ask_mcp(url)
        assert peak_mib() - before < 50
    assert {*accepted} == {"identity"}


@pytest.mark.parametrize("name", HUB)
async def test_a_compressed_reply_of_the_hub_is_not_decompressed(name: str) -> None:
    async with serving(compressed("gzip"), **{"Content-Encoding": "gzip"}) as (url, accepted):
        before = peak_mib()
        with pytest.raises(DataError, match="Content-Encoding"):
            await ask_hub(url, name)
        assert peak_mib() - before < 50
    assert {*accepted} == {"identity"}
