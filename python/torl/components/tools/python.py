"""The Python interpreter as a tool: runs the model's code in the sandbox."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from torl.base.component import RunContext
from torl.base.errors import ConfigError, SandboxError
from torl.base.options import PositiveFloat, PositiveInt, Section
from torl.base.types import Outcome, OutcomeStatus
from torl.components.programs.sandbox_host import ClusterSandbox, SandboxHost
from torl.components.tools.tool import StatefulTool, ToolSession
from torl_sandbox import Execution, Interpreter, InterpreterSession, SandboxPool, StatefulInterpreter

InterpreterState = Literal["fresh", "episode", "replay"]
"""Initial state of a block of code."""

DESCRIPTION = "Runs Python code and returns what it prints, or its error."
CODE_DESCRIPTION = "A Python program; print what you want to see."

_COUNTS = ("shared", "retried", "workers_replaced")
OUTPUT_BYTES = 1 << 20
"""Output limit of a run, stdout and stderr together. A model sees far less of it (`rollout.format`)."""


class PythonOptions(Section):
    """Options of the tool "python": the sandbox that runs the model's code."""

    interpreter_state: InterpreterState = "fresh"
    """Initial state of a block: "fresh" (ToRL), "episode" (the variables of all earlier blocks), or "replay" (earlier
    successful blocks are executed again first)."""
    workers: PositiveInt | None = None
    """Number of worker processes. Default: one for each core."""
    cpu_seconds: PositiveFloat = 10.0
    """CPU time limit of a run, in seconds."""
    wall_seconds: PositiveFloat = 60.0
    """Wall-clock limit of a run, in seconds. A worker that exceeds it is killed and replaced."""
    memory_mib: Annotated[int, Field(ge=192, le=4096)] = 512
    """Memory limit of a run, in MiB, including 177 MiB for the interpreter itself."""
    description: Annotated[str, Field(min_length=1)] = DESCRIPTION
    """Description of the tool, for a model that sees its tools in the prompt."""
    code_description: Annotated[str, Field(min_length=1)] = CODE_DESCRIPTION
    """Description of the argument `code`, for such a model."""

    @model_validator(mode="after")
    def _deadlines_in_order(self) -> Self:
        if self.wall_seconds < self.cpu_seconds:
            raise ValueError("wall_seconds must not be shorter than cpu_seconds")
        return self


def make_parameters(code_description: str) -> Mapping[str, Any]:
    """Return the JSON schema of the arguments: a program, with this description."""
    code = {"type": "string", "description": code_description}
    return {"type": "object", "properties": {"code": code}, "required": ["code"]}


class PythonTool(StatefulTool):
    """Runs Python code in a `SandboxPool`, which it starts, tests and closes."""

    description = DESCRIPTION
    parameters: Mapping[str, Any] = make_parameters(CODE_DESCRIPTION)
    speculative = True
    has_own_limits = True

    def __init__(self, options: PythonOptions | None = None, *, interpreter: Interpreter | None = None) -> None:
        """Set the options.

        Args:
            options: Options of the tool.
            interpreter: Running interpreter to use instead of a new sandbox. It is not closed.

        Raises:
            ConfigError: `interpreter_state` requires an interpreter with sessions.
        """
        self.options = options or PythonOptions()
        self.description = self.options.description
        self.parameters = make_parameters(self.options.code_description)
        self._interpreter = interpreter
        self._sandbox: SandboxHost | ClusterSandbox | None = None
        state = self.options.interpreter_state
        if interpreter is not None and state != "fresh" and not isinstance(interpreter, StatefulInterpreter):
            raise ConfigError(
                f"interpreter_state = {state!r} requires an interpreter with sessions, "
                f"which {type(interpreter).__name__} lacks"
            )

    def session(self, seed: int) -> ToolSession:
        interpreter = self._running()
        if self.options.interpreter_state == "fresh" or not isinstance(interpreter, StatefulInterpreter):
            return _FreshSession(interpreter, seed)
        if self.options.interpreter_state == "replay":
            return _ReplaySession(interpreter, seed)
        return _EpisodeSession(interpreter.session(seed=seed))

    async def start(self, context: RunContext) -> None:
        """Prepare the guest (once per machine), start the workers and run their self-test; on a cluster, on every node.

        Raises:
            SandboxError: The guest is missing, the workers do not start, or the self-test fails.
        """
        if self._interpreter is not None:
            return
        cluster = context.cluster
        if cluster.is_remote:
            workers = self.options.workers
            per_node = {"workers": None if workers is None else -(-workers // cluster.nodes)}
            self._sandbox = ClusterSandbox(functools.partial(make_pool, self.options.model_copy(update=per_node)))
            await self._sandbox.start(cluster)
        else:
            self._sandbox = SandboxHost(functools.partial(make_pool, self.options))
            await self._sandbox.start(context.progress)

    async def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()

    async def check(self) -> None:
        """Run the self-test of the pool; raise `SandboxError` if it fails."""
        if self._sandbox is not None:
            await self._sandbox.check()

    def metrics(self) -> Mapping[str, float]:
        """Return the counts of cache hits, retried runs and replaced workers: `SandboxPool.stats`."""
        if self._sandbox is None:
            return {}
        counts = self._sandbox.stats()
        return {name: counts[name] for name in _COUNTS}

    def _running(self) -> Interpreter:
        interpreter = self._interpreter or self._sandbox
        if interpreter is None:
            raise SandboxError("the Python tool is not running: start it first")
        return interpreter


def make_pool(options: PythonOptions) -> SandboxPool:
    """Start a pool with the limits of the options.

    Raises:
        SandboxError: The workers do not start.
    """
    return SandboxPool(
        workers=options.workers,
        cpu_seconds=options.cpu_seconds,
        wall_seconds=options.wall_seconds,
        memory_bytes=options.memory_mib << 20,
        output_bytes=OUTPUT_BYTES,
    )


def outcome_of(execution: Execution) -> Outcome:
    """Convert an execution to an outcome. Its text is the output, or the last line of the traceback."""
    details: dict[str, Any] = {
        "stdout": execution.stdout,
        "stderr": execution.stderr,
        "traceback": execution.traceback,
        "cpu_seconds": execution.cpu_seconds,
        "wall_seconds": execution.wall_seconds,
        "peak_memory_bytes": execution.peak_memory_bytes,
    }
    if execution.node is not None:
        details["worker_node"] = execution.node
    text = execution.stdout if execution.ok else execution.exception_line or execution.exception_type or ""
    return Outcome(execution.status, text, execution.exception_type, details)


def code_argument(arguments: Mapping[str, Any]) -> str | None:
    """Return the code of a call; None if it is missing, for which the outcome is `MISSING_CODE`."""
    code = arguments.get("code")
    return code if isinstance(code, str) else None


MISSING_CODE = Outcome(OutcomeStatus.ERROR, "TypeError: the argument 'code' must be text", error="TypeError")


@dataclass(frozen=True, slots=True)
class _FreshSession(ToolSession):
    """Runs every call from a fresh state."""

    interpreter: Interpreter
    seed: int

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        code = code_argument(arguments)
        return MISSING_CODE if code is None else outcome_of(await self.interpreter.run_async(code, seed=self.seed))

    def fork(self) -> Self:
        return self


@dataclass(slots=True)
class _EpisodeSession(ToolSession):
    """Runs every call from the state after the last call."""

    program: InterpreterSession

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        code = code_argument(arguments)
        return MISSING_CODE if code is None else outcome_of(await self.program.run_async(code))

    def fork(self) -> Self:
        return type(self)(self.program.fork())


@dataclass(slots=True)
class _ReplaySession(ToolSession):
    """Runs every call after the successful ones, which are executed again."""

    interpreter: StatefulInterpreter
    seed: int
    successful: list[str] = field(default_factory=list)

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        code = code_argument(arguments)
        if code is None:
            return MISSING_CODE
        program = self.interpreter.session(seed=self.seed)
        for earlier in self.successful:
            await program.run_async(earlier)
        outcome = outcome_of(await program.run_async(code))
        if outcome.ok:
            self.successful.append(code)
        return outcome

    def fork(self) -> Self:
        return type(self)(self.interpreter, self.seed, [*self.successful])
