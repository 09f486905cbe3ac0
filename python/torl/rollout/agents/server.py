"""The server of agent programs: OpenAI's chat completions API over HTTP, with a path for each episode."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from torl.base.errors import ConfigError, EngineError
from torl.base.inputs import parse_json
from torl.rollout.agents.episode import AgentEpisode
from torl.rollout.agents.messages import MODEL, Completion, chunks, completion_body, error_body, models_body
from torl.rollout.agents.requests import ChatRequest, RequestError
from torl_sandbox.servers.asgi import Receive, Scope, Send
from torl_sandbox.servers.settings import bound_socket

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_HOST = "127.0.0.1"
_MAX_PENDING = 64  # requests of one episode
_IDLE_SECONDS = 3600.0
_GRACE_SECONDS = 1.0


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
        self._running = AsyncExitStack()
        self._port = 0
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Numbers of requests since the start: "turns" that were sampled, and "refused" ones with an error."""
        return {name: self._counts[name] for name in ("turns", "refused")}

    async def start(self) -> None:
        """Listen on a free port.

        Raises:
            EngineError: No port is available.
            ConfigError: uvicorn is not installed.
        """
        try:
            from torl_sandbox.servers.uvicorn_server import Server
        except ImportError as error:
            raise ConfigError(f"rollout.agent needs {error.name}: pip install 'torl[serve]'") from error
        try:
            listener = self._running.enter_context(bound_socket(_HOST, 0, _IDLE_SECONDS))
        except OSError as error:
            raise EngineError(f"{_HOST}: no port for agent programs is available: {error}") from error
        self._port = listener.getsockname()[1]
        server = Server(
            self._respond,
            listener,
            max_body_bytes=self._max_bytes,
            max_connections=self._max_connections,
            idle_seconds=_IDLE_SECONDS,
            grace_seconds=_GRACE_SECONDS,
            error_body=lambda status, text: error_body(RequestError(text, status=status)),
        )
        # Idle connections of programs must not use up this process's open files.
        await self._running.enter_async_context(server.running())

    async def close(self) -> None:
        """Stop serving. Safe to call twice, and before the start."""
        await self._running.aclose()

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

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: the ASGI application."""
        from starlette.requests import Request

        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        request = Request(scope, receive)
        _, *path = request.url.path.split("/")
        match request.method, path:
            case "POST", [name, "v1", "chat", "completions"]:
                response = await self._chat(name, request)
            case "GET" | "HEAD", [_, "v1", "models"]:
                response = _json(models_body())
            case "GET" | "HEAD", [_, "v1", "models", each] if each == MODEL:
                response = _json(models_body()["data"][0])
            case _:
                text = f"there is no {request.method} {request.url.path}: only chat/completions and models"
                response = _refusal(RequestError(text, status=404))
        await response(scope, receive, send)

    async def _chat(self, name: str, request: "Request") -> "Response":
        from starlette.responses import Response

        try:
            episode = self._episodes.get(name)
            if episode is None:
                raise _ended()
            chat_request, completion = await self._answer(episode, request)
        except RequestError as error:
            self._counts["refused"] += 1
            return _refusal(error)
        except Exception:  # ends the run (`AgentEpisode.host_failure`)
            return _refusal(RequestError("the model is unavailable", status=500))
        self._counts["turns"] += 1
        id = f"chatcmpl-{episode.id.number}-{self._counts['turns']}"
        headers = {"x-torl-ignored": ", ".join(chat_request.ignored)} if chat_request.ignored else {}
        if not chat_request.stream:
            return _json(completion_body(id, completion), headers=headers)
        events = b"".join(chunks(id, completion, with_usage=chat_request.with_usage))
        return Response(events, media_type="text/event-stream", headers=headers)

    async def _answer(self, episode: AgentEpisode, request: "Request") -> tuple[ChatRequest, Completion]:
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
                raise _ended() from None
            raise
        finally:
            tasks.discard(task)

    async def _complete(self, episode: AgentEpisode, request: "Request") -> tuple[ChatRequest, Completion]:
        if int(request.headers.get("content-length", 0)) > self._max_bytes:
            raise RequestError(f"a request has at most {self._max_bytes} bytes", status=413)
        try:
            content = parse_json(await request.body())
        except ValueError:
            raise RequestError("the body of a request is JSON") from None
        chat_request = ChatRequest.read(content)
        return chat_request, await episode.complete(chat_request)


def _ended() -> RequestError:
    return RequestError("this episode has ended", code="episode_ended", status=410)


def _refusal(error: RequestError) -> "Response":
    return _json(error_body(error), error.status)


def _json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    """Return a JSON response. Texts of models may contain lone surrogates, which UTF-8 cannot encode."""
    from starlette.responses import Response

    return Response(json.dumps(content), status, headers, "application/json")
