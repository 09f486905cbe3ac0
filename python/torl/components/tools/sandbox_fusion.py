"""Python code on a server with SandboxFusion's interface, SandboxFusion's own or torl's, as a tool."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from torl.base.component import RunContext
from torl.base.errors import ConfigError, SandboxError
from torl.base.inputs import parse_json
from torl.base.options import NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.base.runtime.http import client_session, read_reply
from torl.base.trust import require_trust
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools.python import MISSING_CODE, PythonTool, code_argument
from torl.components.tools.retry import TransientError, retry
from torl.components.tools.tool import StatefulTool, ToolSession

if TYPE_CHECKING:
    import aiohttp

Json = dict[str, Any]

_HEALTH_CHECK = ("print(6 * 7)", "42\n")
_TRANSIENT_STATUSES = {408, 425, 429}  # in addition to 5xx
_MAX_SHOWN = 300  # characters of an invalid reply
_FINAL_STATUSES = ("Finished", "TimeLimitExceeded")
_TRACEBACK = "Traceback (most recent call last):\n"
# The line of the exception, after the indented frames.
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: .*)?$", re.MULTILINE)
# The code of torl's server for an exceeded output limit: minus the signal.
_SIGXFSZ = -25


class SandboxFusionOptions(Section):
    """Options of the tool "sandbox_fusion": a server that runs the model's code."""

    url: str
    """Address of the server, such as http://host:port."""
    wall_seconds: PositiveFloat = 10.0
    """Wall-clock limit of a run on the server, in seconds."""
    memory_mib: PositiveInt | None = None
    """Memory limit of a run, in MiB. Default: the limit of the server."""
    timeout_seconds: PositiveFloat = 60.0
    """Timeout of a request, in seconds, including the time that it waits on the server."""
    retries: NonNegativeInt = 8
    """Maximum number of retries of a request without an outcome. After the last retry, the episode fails."""
    max_concurrent: PositiveInt = 256
    """Maximum number of concurrent requests."""

    @model_validator(mode="after")
    def _require_valid_url_and_timeouts(self) -> Self:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, not {self.url!r}")
        if self.timeout_seconds <= self.wall_seconds:
            raise ValueError("timeout_seconds must be longer than wall_seconds")
        return self


class SandboxFusionTool(StatefulTool):
    """Runs each call in a fresh state on the server. A failure of the server fails the episode."""

    description = PythonTool.description
    parameters = PythonTool.parameters
    speculative = True
    has_own_limits = True

    def __init__(self, options: SandboxFusionOptions) -> None:
        require_trust(options.url, "connected to")
        self.options = options
        self.requests = self.retried = 0
        self._url = options.url.rstrip("/").removesuffix("/run_code")
        self._slots = asyncio.Semaphore(options.max_concurrent)
        self._session: aiohttp.ClientSession | None = None

    def session(self, seed: int) -> ToolSession:
        """Open a session of independent calls. torl's server uses the seed; SandboxFusion's own ignores it."""
        self._running()
        request: Json = {"language": "python", "run_timeout": self.options.wall_seconds, "seed": seed}
        if self.options.memory_mib is not None:
            request["memory_limit_MB"] = self.options.memory_mib
        return _FusionSession(self, request)

    async def start(self, context: RunContext) -> None:
        """Connect to the server and run a health check.

        Raises:
            SandboxError: The health check failed.
            ToolUnavailableError: The server cannot be reached.
            ConfigError: aiohttp is not installed.
        """
        try:
            import aiohttp
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'sandbox_fusion' needs {error.name}: pip install 'torl[search]'") from error
        # The slots limit the connections. A limit here would count the wait for a connection as time of the request.
        self._session = client_session(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=self.options.timeout_seconds)
        )
        await self.check()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def check(self) -> None:
        """Run a program with a known result.

        Raises:
            SandboxError: The result is wrong.
            ToolUnavailableError: The server returned no outcome.
        """
        code, output = _HEALTH_CHECK
        outcome = await self.session(0).call({"code": code})
        if not outcome.ok or outcome.text != output:
            raise SandboxError(f"the SandboxFusion server at {self.options.url} ran {code!r} and gave {outcome}")

    def metrics(self) -> Mapping[str, float]:
        """Return the number of requests, and of retries among them."""
        return {} if self._session is None else {"requests": self.requests, "retried": self.retried}

    async def run_code(self, request: Json) -> Json:
        """Run a program and return its `run_result`: status, return_code, stdout, stderr, execution_time.

        Requests without an outcome are retried. Cancellation closes the connection.

        Raises:
            ToolUnavailableError: The server returned no outcome, after all retries.
            SandboxError: The server rejects the request.
        """
        body = json.dumps(request).encode()
        async with self._slots:
            return await retry(
                lambda: self._attempt(body),
                retries=self.options.retries,
                failure=f"the SandboxFusion server at {self._url} returned no outcome",
                counts=self,
            )

    async def _attempt(self, body: bytes) -> Json:
        import aiohttp

        self.requests += 1
        try:
            async with self._running().post(
                f"{self._url}/run_code", data=body, headers={"Content-Type": "application/json"}
            ) as response:
                reply = await read_reply(response)
        except TimeoutError as error:
            raise TransientError(f"no reply within {self.options.timeout_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        text = reply[:_MAX_SHOWN].decode(errors="replace")
        if response.status in _TRANSIENT_STATUSES or response.status >= 500:
            pause = response.headers.get("Retry-After", "")
            raise TransientError(f"HTTP {response.status}: {text}", float(pause) if pause.isdecimal() else 0.0)
        if response.status != 200:
            raise SandboxError(f"the SandboxFusion server at {self._url} refuses: HTTP {response.status}: {text}")
        return _run_result(reply, text)

    def _running(self) -> "aiohttp.ClientSession":
        if self._session is None:
            raise SandboxError("the tool 'sandbox_fusion' is not running: start it first")
        return self._session


@dataclass(frozen=True, slots=True)
class _FusionSession(ToolSession):
    tool: SandboxFusionTool
    request: Json

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        code = code_argument(arguments)
        if code is None:
            return MISSING_CODE
        return outcome_of_result(await self.tool.run_code({**self.request, "code": code}))

    def fork(self) -> Self:
        return self


def outcome_of_result(result: Json) -> Outcome:
    """Convert the `run_result` of a reply to an outcome, like `torl.components.tools.python.outcome_of`."""
    stdout, stderr = result["stdout"], result["stderr"]
    details: Json = {"stdout": stdout, "stderr": stderr, "traceback": None}
    details["wall_seconds"] = result.get("execution_time") or 0.0
    if result["status"] == "TimeLimitExceeded":
        return Outcome(OutcomeStatus.TIMEOUT, "", None, details)
    code = result["return_code"]
    if code == 0:
        return Outcome(OutcomeStatus.OK, stdout, None, details)
    if code < 0:
        status = OutcomeStatus.OUTPUT_LIMIT if code == _SIGXFSZ else OutcomeStatus.CRASH
        return Outcome(status, "", None, details)
    details["traceback"], line, error = _exception(stderr, code)
    return Outcome(OutcomeStatus.MEMORY if error == "MemoryError" else OutcomeStatus.ERROR, line, error, details)


def _exception(stderr: str, code: int) -> tuple[str | None, str, str]:
    """Return the traceback in stderr, its last line and the exception type; `SystemExit` without an exception."""
    start = stderr.rfind(_TRACEBACK)
    if start >= 0 and (found := _EXCEPTION.search(stderr, start + len(_TRACEBACK))):
        return f"{stderr[start : found.end()]}\n", found.group(0), found.group(1)
    line = stderr.rstrip("\n").rpartition("\n")[2]
    if found := _EXCEPTION.fullmatch(line):  # a SyntaxError has no frames
        return None, line, found.group(1)
    return None, f"SystemExit: {line or code}", "SystemExit"


def _run_result(reply: bytes, text: str) -> Json:
    """Return the `run_result` of a reply; raise `TransientError` if it has no outcome."""
    try:
        fields = parse_json(reply)
    except ValueError as error:
        raise TransientError(f"a reply that is not JSON: {text}") from error
    result = fields.get("run_result") if isinstance(fields, dict) else None
    if not isinstance(result, dict) or fields.get("status") not in ("Success", "Failed"):
        raise TransientError(f"a reply without an outcome: {text}")
    status = result.get("status")
    outputs = [result.get(name) or "" for name in ("stdout", "stderr")]
    if status not in _FINAL_STATUSES or not all(isinstance(each, str) for each in outputs):
        raise TransientError(f"a reply without an outcome: {text}")
    if status == "Finished" and not isinstance(result.get("return_code"), int):
        raise TransientError(f"a reply without a return code: {text}")
    return {**result, "stdout": outputs[0], "stderr": outputs[1]}
