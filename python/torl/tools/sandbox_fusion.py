"""The Python interpreter as a tool, on a server that speaks SandboxFusion's interface: its own, or torl's."""

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from pydantic import model_validator

from torl.component import RunContext
from torl.errors import SandboxError
from torl.options import NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.tools.base import StatefulTool, ToolSession
from torl.tools.fusion_client import FusionClient, Json
from torl.tools.python import MISSING_CODE, PythonTool, code_argument
from torl.types import Outcome, OutcomeStatus

_PROOF = ("print(6 * 7)", "42\n")
_TRACEBACK = "Traceback (most recent call last):\n"
# The line with the exception: behind its frames, which are indented.
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: .*)?$", re.MULTILINE)
# As torl's server says it, by the signal that would have ended a process: more output than allowed.
_SIGXFSZ = -25


class SandboxFusionOptions(Section):
    """Options of the tool "sandbox_fusion": a server that runs the model's code."""

    url: str
    """Address of the server: http://host:port."""
    run_timeout_seconds: PositiveFloat = 10.0
    """Time one run may take, as the server measures it, before it ends as a time-out."""
    memory_mib: PositiveInt | None = None
    """Memory of one run, in MiB; what the server allows when unset."""
    timeout_seconds: PositiveFloat = 60.0
    """How long the server may take to answer a request, waiting for its turn included."""
    retries: NonNegativeInt = 8
    """How often a request that brought no outcome is sent again, before its episode is given up."""
    initial_backoff_seconds: PositiveFloat = 0.25
    """Pause before the first retry, in seconds; each further one is twice as long, up to 30 s."""
    max_concurrent: PositiveInt = 256
    """Requests at once."""

    @model_validator(mode="after")
    def _an_address_and_time_for_an_answer(self) -> Self:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, not {self.url!r}")
        if self.timeout_seconds <= self.run_timeout_seconds:
            raise ValueError("timeout_seconds must be longer than run_timeout_seconds")
        return self


class SandboxFusionTool(StatefulTool):
    """Runs each call in a fresh state on the server. What the server does wrong is no outcome: it spoils an episode."""

    description = PythonTool.description
    parameters = PythonTool.parameters
    speculative = True
    has_own_limits = True

    def __init__(self, options: SandboxFusionOptions) -> None:
        """Connect to nothing yet."""
        self.options = options
        self._open = AsyncExitStack()
        self._client: FusionClient | None = None

    def session(self, seed: int) -> ToolSession:
        """Calls that know nothing of each other. The seed is for torl's server; SandboxFusion's own ignores it."""
        if self._client is None:
            raise SandboxError("the tool 'sandbox_fusion' is not running: start it first")
        request: Json = {"language": "python", "run_timeout": self.options.run_timeout_seconds, "seed": seed}
        if self.options.memory_mib is not None:
            request["memory_limit_MB"] = self.options.memory_mib
        return _Session(self._client, request)

    async def start(self, context: RunContext) -> None:
        """Ask the server to prove that it works.

        Raises:
            SandboxError: it does not.
            ToolUnavailableError: nobody is there.
            ConfigError: aiohttp is not installed.
        """
        options = self.options
        client = FusionClient(
            options.url,
            timeout_seconds=options.timeout_seconds,
            retries=options.retries,
            initial_backoff_seconds=options.initial_backoff_seconds,
            concurrency=options.max_concurrent,
        )
        self._client = await self._open.enter_async_context(client)
        await self.check()

    async def close(self) -> None:
        """Close the connections."""
        self._client = None
        await self._open.aclose()

    async def check(self) -> None:
        """Run a program with a known result.

        Raises:
            SandboxError: it ended otherwise.
            ToolUnavailableError: the server gave no outcome.
        """
        code, printed = _PROOF
        outcome = await self.session(0).call({"code": code})
        if not outcome.ok or outcome.text != printed:
            raise SandboxError(f"the SandboxFusion server at {self.options.url} ran {code!r} and gave {outcome}")

    def metrics(self) -> Mapping[str, float]:
        """Requests sent, and how many of them again."""
        return {} if self._client is None else {"requests": self._client.requests, "retried": self._client.retried}


@dataclass(frozen=True, slots=True)
class _Session(ToolSession):
    client: FusionClient
    request: Json

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        code = code_argument(arguments)
        return (
            MISSING_CODE
            if code is None
            else outcome_of_result(await self.client.run_code({**self.request, "code": code}))
        )

    def fork(self) -> Self:
        return self


def outcome_of_result(result: Json) -> Outcome:
    """What a run gave, from the `run_result` of the server's answer, as `torl.tools.python.outcome_of` says it."""
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
    """The traceback in stderr, its line with the exception, and the exception's type. Without one it was an exit."""
    start = stderr.rfind(_TRACEBACK)
    if start >= 0 and (found := _EXCEPTION.search(stderr, start + len(_TRACEBACK))):
        return f"{stderr[start : found.end()]}\n", found.group(0), found.group(1)
    line = stderr.rstrip("\n").rpartition("\n")[2]
    if found := _EXCEPTION.fullmatch(line):  # a SyntaxError has no frames
        return None, line, found.group(1)
    return None, f"SystemExit: {line or code}", "SystemExit"
