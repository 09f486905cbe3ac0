"""Limits on programs: connections, open files, request bodies, and the controller's time."""

import asyncio
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent_programs import MODEL, agent_player, ask, begun, opened, turns, user
from torl.base.errors import ConfigError
from torl.rollout.agents.episode import AgentEpisode
from torl.rollout.agents.player import AgentPlayer, connection_limit
from torl.rollout.agents.requests import RequestError
from torl.rollout.agents.server import AgentServer


class Connection:
    """A connection of a program that knows no HTTP library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, player: AgentPlayer, episode: AgentEpisode) -> "Connection":
        url = player.agents.server.open_episode(episode)
        port = int(url.split(":")[2].partition("/")[0])
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def ask(
        self, episode: AgentEpisode, body: bytes, length: int | None = None, headers: str = "Host: localhost\r\n"
    ) -> None:
        """A request that may announce a longer body than it sends."""
        head = f"POST /{episode.name}/v1/chat/completions HTTP/1.1\r\n{headers}"
        self.writer.write(f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body)

    async def status(self) -> int:
        """The status of an answer, which is read completely."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        await self.reader.readexactly(length)
        return int(head.split()[1])

    async def closed(self) -> bool:
        """Wait until the server closes the connection."""
        return await self.reader.read() == b""


ASKED = json.dumps({"messages": [user("?")]}).encode()


async def test_where_too_many_connections_are_open_the_oldest_idle_ones_are_closed() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"))
    player.agents.server = AgentServer(max_connections=3)
    async with opened(player):
        episode = begun(player)
        reading = await Connection.to(player, episode)
        reading.ask(episode, ASKED[:-1], length=len(ASKED))
        while not player.agents.server._pending[episode.name]:
            await asyncio.sleep(0)
        idle = [await Connection.to(player, episode) for _ in range(8)]
        for each in idle[:6]:
            assert await each.closed()
        reading.writer.write(ASKED[-1:])
        assert await reading.status() == 200  # the oldest of all was not idle
        for each in idle[6:]:
            each.ask(episode, ASKED)
            assert await each.status() == 200
        for each in (reading, *idle):
            each.writer.close()
        episode.close()


async def test_where_all_connections_have_a_request_a_new_one_is_closed() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"))
    player.agents.server = AgentServer(max_connections=2)
    async with opened(player):
        episode = begun(player)
        reading = [await Connection.to(player, episode) for _ in range(2)]
        for each in reading:
            each.ask(episode, ASKED[:-1], length=len(ASKED))
        while len(player.agents.server._pending[episode.name]) < 2:
            await asyncio.sleep(0)
        assert await (await Connection.to(player, episode)).closed()
        for each in reading:
            each.writer.write(ASKED[-1:])
            assert await each.status() == 200
            each.writer.close()
        episode.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: localhost:80\r\nOrigin: http://localhost\r\n", 200),
        ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: evil.example\r\n", 421),
    ],
)
async def test_a_web_page_gets_no_turn(headers: str, status: int) -> None:
    async with opened(agent_player(MODEL, turns("Yes.<|im_end|>"))) as player:
        episode = begun(player)
        connection = await Connection.to(player, episode)
        connection.ask(episode, ASKED, headers=headers)
        assert await connection.status() == status
        connection.writer.close()
        episode.close()


@pytest.mark.parametrize("encoding", ["deflate", "gzip"])
async def test_a_compressed_body_is_refused_without_a_record(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(agent_player(MODEL, turns("Yes.<|im_end|>"))) as player:
        episode = begun(player)
        connection = await Connection.to(player, episode)
        connection.ask(episode, b"\xff" * 100, headers=f"Host: localhost\r\nContent-Encoding: {encoding}\r\n")
        assert await connection.status() == 415
        connection.writer.close()
        episode.close()
    assert [record for record in caplog.records if record.name.startswith(("aiohttp", "torl"))] == []


async def test_request_without_a_body_is_dropped_with_its_episode() -> None:
    async with opened(agent_player(MODEL, turns("Yes.<|im_end|>"))) as player:
        episode = begun(player)
        connection = await Connection.to(player, episode)
        connection.ask(episode, b"{", length=100)
        while not player.agents.server._pending[episode.name]:
            await asyncio.sleep(0)
        await player.agents.server.close_episode(episode)
        assert await connection.status() == 410
        connection.writer.close()
        episode.close()


async def test_a_body_has_so_many_bytes() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"))
    player.agents.server = AgentServer(max_body_bytes=len(ASKED))
    async with opened(player):
        episode = begun(player)
        connection = await Connection.to(player, episode)
        connection.ask(episode, ASKED)
        assert await connection.status() == 200
        connection.ask(episode, ASKED + b" ")
        assert await connection.status() == 413
        connection.writer.close()
        episode.close()


async def test_oversized_request_is_refused_before_encoding() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"), window=10)
    most = MODEL.encoder.max_bytes(10)
    episode = begun(player)
    for length, text in ((most, r"messages have \d+ tokens"), (most + 1, f"messages have {most + 1} characters")):
        with pytest.raises(RequestError, match=text) as refused:
            await ask(episode, [user("x" * length)])
        assert refused.value.code == "context_length_exceeded"
    episode.close()


@contextmanager
def open_files(soft: int) -> Iterator[None]:
    """A lower limit of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_open_file_limit_is_raised_for_concurrent_programs_only() -> None:
    with open_files(1024):
        assert connection_limit(1) == (1024 - 512 - 6) // 2
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1024
        assert connection_limit(100) == 200
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1512


def test_more_programs_than_there_can_be_files_for_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"max_concurrent = 1000000000 needs .* set max_concurrent lower"):
        connection_limit(10**9)
