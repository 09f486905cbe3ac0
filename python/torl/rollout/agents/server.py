"""The server of agent programs: OpenAI's chat completions API over HTTP, with a path for each episode."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torl.base.errors import ConfigError, EngineError
from torl.base.inputs import parse_json
from torl.rollout.agents.episode import AgentEpisode
from torl.rollout.agents.messages import MODEL, Completion, chunks, completion_body, error_body, models_body
from torl.rollout.agents.requests import ChatRequest, RequestError
from torl_sandbox.servers.http import BoundedConnections, log_no_malformed_requests, refusal, server_runner

if TYPE_CHECKING:
    from aiohttp import web

_HOST = "127.0.0.1"
_MAX_PENDING = 64  # requests of one episode
_BACKLOG = 1024


class AgentServer:
    """An HTTP server on the local machine. The path of a request names its episode."""

    def __init__(self, max_body_bytes: int = 4 << 20, max_connections: int = 4096) -> None:
        """Set the limits; `start` listens.

        Args:
            max_body_bytes: Maximum size of a request's body.
            max_connections: Maximum number of open connections. Beyond it, the oldest idle connection is closed.
        """
        self._max_bytes, self._max_connections = max_body_bytes, max_connections
        self._episodes: dict[str, AgentEpisode] = {}
        self._pending: dict[str, set[asyncio.Task[Any]]] = {}  # requests by episode
        self._busy: set[web.RequestHandler] = set()  # connections with a pending turn
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Numbers of requests since the start: "turns" that were sampled, and "refused" ones with an error."""
        return {name: self._counts[name] for name in ("turns", "refused")}

    async def start(self) -> None:
        """Listen on a free port.

        Raises:
            EngineError: No port is available.
            ConfigError: aiohttp is not installed.
        """
        try:
            from aiohttp import web
        except ImportError as error:
            raise ConfigError(f"rollout.agent needs {error.name}: pip install 'torl[serve]'") from error
        log_no_malformed_requests()

        @web.middleware
        async def check_headers(request: web.Request, handler: Any) -> web.StreamResponse:
            refused = refusal(request.headers.items(), _HOST)
            if refused is None:
                answer: web.StreamResponse = await handler(request)
                return answer
            return web.json_response(error_body(RequestError(refused[1], status=refused[0])), status=refused[0])

        app = web.Application(client_max_size=self._max_bytes, middlewares=[check_headers])
        app.add_routes(
            [
                web.post("/{episode}/v1/chat/completions", self._chat),
                web.get("/{episode}/v1/models", self._models),
                web.get(f"/{{episode}}/v1/models/{MODEL}", self._model),
                web.route("*", "/{path:.*}", self._unknown),
            ]
        )
        self._runner = server_runner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        # Idle connections of programs must not use up this process's open files.
        connections = BoundedConnections(self._runner.server, self._max_connections, self._busy)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(connections, _HOST, 0, backlog=_BACKLOG)
        except OSError as error:
            raise EngineError(f"{_HOST}: no port for agent programs is available: {error.strerror}") from error
        self._port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop serving. Safe to call twice, and before the start."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def open_episode(self, episode: AgentEpisode) -> str:
        """Serve an episode; return the base URL of its requests."""
        self._episodes[episode.name] = episode
        self._pending[episode.name] = set()
        return f"http://{_HOST}:{self._port}/{episode.name}/v1"

    async def close_episode(self, episode: AgentEpisode) -> None:
        """Cancel the pending requests of an episode, and refuse others."""
        self._episodes.pop(episode.name, None)
        tasks = self._pending.pop(episode.name, set())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _chat(self, request: "web.Request") -> "web.StreamResponse":
        from aiohttp import web

        self._busy.add(request.protocol)
        try:
            episode = self._episode(request)
            chat_request, completion = await self._answer(episode, request)
        except RequestError as error:
            self._counts["refused"] += 1
            return web.json_response(error_body(error), status=error.status)
        except Exception:  # ends the run (`AgentEpisode.host_failure`)
            return web.json_response(error_body(RequestError("the model is unavailable", status=500)), status=500)
        finally:
            self._busy.discard(request.protocol)
        self._counts["turns"] += 1
        id = f"chatcmpl-{episode.id.number}-{self._counts['turns']}"
        headers = {"x-torl-ignored": ", ".join(chat_request.ignored)} if chat_request.ignored else {}
        if not chat_request.stream:
            return web.json_response(completion_body(id, completion), headers=headers)
        events = b"".join(chunks(id, completion, with_usage=chat_request.with_usage))
        return web.Response(body=events, content_type="text/event-stream", charset="utf-8", headers=headers)

    async def _answer(self, episode: AgentEpisode, request: "web.Request") -> tuple[ChatRequest, Completion]:
        """Sample the turn of a request, in a task that is cancelled with the episode or with the request."""
        tasks = self._pending[episode.name]
        if len(tasks) >= _MAX_PENDING:
            raise RequestError(f"{_MAX_PENDING} requests of this episode are pending", code="too_many_requests")
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
        chat_request = ChatRequest.read(await self._body(request))
        return chat_request, await episode.complete(chat_request)

    async def _body(self, request: "web.Request") -> Any:
        from aiohttp import web

        try:
            return parse_json(await request.read())
        except web.HTTPRequestEntityTooLarge:
            raise RequestError(f"a request has at most {self._max_bytes} bytes", status=413) from None
        except web.RequestPayloadError:
            raise RequestError("the body of a request is incomplete") from None
        except ValueError:
            raise RequestError("the body of a request is JSON") from None

    def _episode(self, request: "web.Request") -> AgentEpisode:
        """The episode of a request.

        Raises:
            RequestError: The episode has ended.
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
