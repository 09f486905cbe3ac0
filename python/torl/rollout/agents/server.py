"""The address that agent programs ask: OpenAI's chat completions over HTTP, with a path for each episode."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torl.errors import ConfigError, EngineError
from torl.rollout.agents.episode import AgentEpisode, Completion
from torl.rollout.agents.requests import ChatRequest, RequestError
from torl.rollout.agents.responses import MODEL, chunks, completion_body, error_body, models_body

if TYPE_CHECKING:
    from aiohttp import web

_HOST = "127.0.0.1"
_MAX_OPEN = 64  # requests of one episode
_BACKLOG = 1024


class AgentServer:
    """Listens on an address of this machine; the path names the episode."""

    def __init__(self, max_body_bytes: int = 4 << 20, max_connections: int = 4096) -> None:
        """Listen to nothing yet.

        Args:
            max_body_bytes: of a request's body.
            max_connections: that are open at once. For one more the oldest is closed that is idle.
        """
        self._max_bytes, self._max_connections = max_body_bytes, max_connections
        self._episodes: dict[str, AgentEpisode] = {}
        self._open: dict[str, set[asyncio.Task[Any]]] = {}
        self._answering: set[web.RequestHandler] = set()  # connections in which a turn is asked for
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Requests that were answered with a turn, and with an error, since the start."""
        return {name: self._counts[name] for name in ("turns", "refused")}

    async def start(self) -> None:
        """Listen on any port that is free.

        Raises:
            EngineError: none can be had.
            ConfigError: the library for it is not installed.
        """
        try:
            from aiohttp import web
        except ImportError as error:
            raise ConfigError(f"rollout.agent needs {error.name}: pip install 'torl[serve]'") from error
        app = web.Application(client_max_size=self._max_bytes)
        app.add_routes(
            [
                web.post("/{episode}/v1/chat/completions", self._chat),
                web.get("/{episode}/v1/models", self._models),
                web.get(f"/{{episode}}/v1/models/{MODEL}", self._model),
                web.route("*", "/{path:.*}", self._unknown),
            ]
        )
        # A program that goes away gives up the turn that it has asked for.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._connection, _HOST, 0, backlog=_BACKLOG)
        except OSError as error:
            raise EngineError(f"{_HOST}: no port for agent programs can be had: {error.strerror}") from error
        self._port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Answer nothing any more. Safe to call twice, and before the start."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _connection(self) -> asyncio.Protocol:
        """What answers a connection that a program has opened."""
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        # Programs that leave theirs open would leave no file to open for anybody else.
        idle = [each for each in server.connections if each not in self._answering]
        for each in idle[: max(0, len(server.connections) + 1 - self._max_connections)]:
            each.force_close()
        return server()

    def open_episode(self, episode: AgentEpisode) -> str:
        """Answer requests for this episode; returns their base URL."""
        self._episodes[episode.name] = episode
        self._open[episode.name] = set()
        return f"http://{_HOST}:{self._port}/{episode.name}/v1"

    async def close_episode(self, episode: AgentEpisode) -> None:
        """Give up the requests that are open, and refuse all others."""
        self._episodes.pop(episode.name, None)
        tasks = self._open.pop(episode.name, set())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _chat(self, request: "web.Request") -> "web.StreamResponse":
        from aiohttp import web

        self._answering.add(request.protocol)
        try:
            episode = self._episode(request)
            asked, completion = await self._answered(episode, request)
        except RequestError as error:
            self._counts["refused"] += 1
            return web.json_response(error_body(error), status=error.status)
        except Exception:  # which ends the run (`AgentEpisode.broken`)
            return web.json_response(error_body(RequestError("the model is gone", status=500)), status=500)
        finally:
            self._answering.discard(request.protocol)
        self._counts["turns"] += 1
        id = f"chatcmpl-{episode.number}-{self._counts['turns']}"
        headers = {"x-torl-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        if not asked.stream:
            return web.json_response(completion_body(id, completion), headers=headers)
        events = b"".join(chunks(id, completion, with_usage=asked.with_usage))
        return web.Response(body=events, content_type="text/event-stream", charset="utf-8", headers=headers)

    async def _answered(self, episode: AgentEpisode, request: "web.Request") -> tuple[ChatRequest, Completion]:
        """The turn that a request asks for, in a task of its own, which ends with the episode or with the request."""
        tasks = self._open[episode.name]
        if len(tasks) >= _MAX_OPEN:
            raise RequestError(f"{_MAX_OPEN} requests of this episode are open", code="too_many_requests")
        task = asyncio.ensure_future(self._complete(episode, request))
        tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
            if episode.name not in self._episodes:
                raise RequestError("this episode has ended", code="episode_ended", status=410) from None
            raise
        finally:
            tasks.discard(task)

    async def _complete(self, episode: AgentEpisode, request: "web.Request") -> tuple[ChatRequest, Completion]:
        asked = ChatRequest.read(await self._body(request))
        return asked, await episode.complete(asked)

    async def _body(self, request: "web.Request") -> Any:
        from aiohttp import web

        try:
            return json.loads(await request.read())
        except web.HTTPRequestEntityTooLarge:
            raise RequestError(f"a request has at most {self._max_bytes} bytes", status=413) from None
        except (ValueError, RecursionError):
            raise RequestError("the body of a request is JSON") from None

    def _episode(self, request: "web.Request") -> AgentEpisode:
        """The episode that a request belongs to.

        Raises:
            RequestError: there is none any more.
        """
        episode = self._episodes.get(request.match_info["episode"])
        if episode is None:
            raise RequestError("this episode has ended", code="episode_ended", status=410)
        return episode

    async def _models(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        return web.json_response(models_body())

    async def _model(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        return web.json_response(models_body()["data"][0])

    async def _unknown(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        error = RequestError(
            f"there is no {request.method} {request.path}: only chat/completions and models", status=404
        )
        return web.json_response(error_body(error), status=404)
