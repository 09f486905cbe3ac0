"""Asks a SandboxFusion server to run code, again where it could not."""

import asyncio
import json
import random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torl.errors import ConfigError, SandboxError, ToolUnavailableError

if TYPE_CHECKING:
    import aiohttp

Json = dict[str, Any]

_MAX_PAUSE = 30.0  # seconds
_AGAIN = {408, 425, 429}  # and every 5xx: the server is busy or broken, the request is not
_MAX_SHOWN = 300  # characters of an answer that is no outcome
_ENDED = ("Finished", "TimeLimitExceeded")


class _TransientError(Exception):
    """Asking again may help; the server may have said when."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class FusionClient:
    """Connections to one server. Whatever is no outcome of the code is asked again, and then is an error."""

    def __init__(
        self, url: str, *, timeout_seconds: float, retries: int, initial_backoff_seconds: float, concurrency: int
    ) -> None:
        self._url = url.rstrip("/").removesuffix("/run_code")
        self._retries = retries
        self._retry_seconds = initial_backoff_seconds
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(concurrency)
        self._session: aiohttp.ClientSession | None = None
        self.requests = 0
        self.retried = 0

    async def __aenter__(self) -> Self:
        try:
            import aiohttp
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'sandbox_fusion' needs {error.name}: pip install 'torl[serve]'") from error
        # The slots bound the connections. A limit here would let the time a request waits for one count as its own.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def run_code(self, request: Json) -> Json:
        """The `run_result` of a program: status, return_code, stdout, stderr, execution_time.

        Cancelling gives the request up: the connection is closed.

        Raises:
            ToolUnavailableError: the server did not answer with an outcome, however often it was asked.
            SandboxError: it refuses the request.
        """
        body = json.dumps(request).encode()
        async with self._slots:
            for attempt in range(self._retries + 1):
                self.requests += 1
                try:
                    return await self._ask(body)
                except _TransientError as error:
                    if attempt == self._retries:
                        raise ToolUnavailableError(
                            f"the SandboxFusion server at {self._url} gave no outcome in {attempt + 1} tries; "
                            f"the last: {error}"
                        ) from error
                    pause = self._retry_seconds * 2**attempt * random.uniform(0.5, 1)
                    await asyncio.sleep(min(max(pause, error.pause), _MAX_PAUSE))
                self.retried += 1
        raise AssertionError("unreachable")

    async def _ask(self, body: bytes) -> Json:
        import aiohttp

        if self._session is None:
            raise SandboxError("the tool 'sandbox_fusion' is not running: start it first")
        try:
            async with self._session.post(
                f"{self._url}/run_code", data=body, headers={"Content-Type": "application/json"}
            ) as response:
                text = await response.read()
        except TimeoutError as error:
            raise _TransientError(f"no answer within {self._timeout_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from error
        shown = text[:_MAX_SHOWN].decode(errors="replace")
        if response.status in _AGAIN or response.status >= 500:
            raise _TransientError(f"HTTP {response.status}: {shown}", _seconds(response.headers.get("Retry-After")))
        if response.status != 200:
            raise SandboxError(f"the SandboxFusion server at {self._url} refuses: HTTP {response.status}: {shown}")
        return _result(text, shown)


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 0.0


def _result(text: bytes, shown: str) -> Json:
    """The outcome in an answer."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _TransientError(f"an answer that is no JSON: {shown}") from error
    result = answer.get("run_result") if isinstance(answer, dict) else None
    if not isinstance(result, dict) or answer.get("status") not in ("Success", "Failed"):
        raise _TransientError(f"an answer without an outcome: {shown}")
    ended = result.get("status")
    texts = [result.get(name) or "" for name in ("stdout", "stderr")]
    if ended not in _ENDED or not all(isinstance(each, str) for each in texts):
        raise _TransientError(f"an answer without an outcome: {shown}")
    if ended == "Finished" and not isinstance(result.get("return_code"), int):
        raise _TransientError(f"an answer without a return code: {shown}")
    return {**result, "stdout": texts[0], "stderr": texts[1]}
