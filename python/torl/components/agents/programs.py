"""Commands and coroutine functions as agents."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from torl.base.component import RunContext
from torl.base.errors import AgentProgramError, ConfigError
from torl.base.guard import calling
from torl.base.options import load_object
from torl.base.runtime.processes.children import command_words, describe_exit, dying_with_parent
from torl.base.trust import require_trust
from torl.base.types import Problem
from torl.components.agents import Agent, check_answer

MAX_OUTPUT_BYTES = 1 << 20
_API_KEY = "any"  # required by clients
_MAX_LINE = 1000  # characters of stderr in an error
_MAX_ENTRY = 8000  # characters of stderr in the log: the file is written by the event loop
_MAX_LOG_BYTES = 64 << 20
_LOCAL_HOSTS = ("127.0.0.1", "localhost")
_MAX_VARIABLE = 100_000  # bytes; the limit of Linux is 128 KiB, including the name


class CommandAgent(Agent):
    """Runs a command for each episode, in a new process group that is killed when the program exits or is cancelled.

    The program receives the question on standard input and in the environment variable TORL_PROBLEM, unless it is too
    long for a variable. OPENAI_BASE_URL and OPENAI_API_KEY configure OpenAI's clients; TORL_PROBLEM_ID is the id of the
    problem. NO_PROXY and no_proxy exclude the local host from proxies. The standard output is the answer. If it is
    empty, the last message of the model is the answer.

    The end of the standard error of a program that fails or times out is added to `agent.log` in the run's logs, which
    has at most 64 MiB of them.
    """

    def __init__(self, command: str) -> None:
        """Find the program.

        Args:
            command: Program and arguments, split as in a shell. It is not run in a shell.

        Raises:
            ConfigError: The program does not exist.
        """
        require_trust(command, "started")
        self._command = command_words(command, "the agent's")
        self._starts = asyncio.Lock()
        self._log: Path | None = None

    async def start(self, context: RunContext) -> None:
        self._log = context.directory / "agent.log"

    async def run(self, problem: Problem, url: str) -> str | None:
        """Run the program and return its output.

        Raises:
            AgentProgramError: The program failed, or its output is too long. The message ends with the last line of its
                stderr.
        """
        environment = {
            **without_local_proxy(os.environ),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": _API_KEY,
            "TORL_PROBLEM_ID": problem.id,
        }
        if len(problem.question.encode()) <= _MAX_VARIABLE and "\0" not in problem.question:
            environment["TORL_PROBLEM"] = problem.question
        with (
            _question(problem.question) as question,
            _ProcessOutput(MAX_OUTPUT_BYTES) as stdout,
            _ProcessOutput(MAX_OUTPUT_BYTES) as stderr,
        ):
            async with self._starts:  # each start blocks the event loop for some milliseconds
                process = await asyncio.create_subprocess_exec(
                    *dying_with_parent(*self._command),
                    stdin=question,
                    stdout=stdout.end,
                    stderr=stderr.end,
                    env=environment,
                    start_new_session=True,
                )
            status: int | None = None
            try:
                status = await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                if status != 0:
                    self._append_to_log(problem, status, stderr.text())
            if status != 0:
                *_, last = stderr.text().splitlines() or ["(stderr is empty)"]
                raise AgentProgramError(f"{describe_exit(status)}: {last[:_MAX_LINE]}")
            answer = stdout.text()
            if stdout.is_cut:
                raise AgentProgramError(
                    f"stdout exceeds {MAX_OUTPUT_BYTES} bytes; print only the answer and write logs to stderr"
                )
        return answer or None

    def _append_to_log(self, problem: Problem, status: int | None, stderr: str) -> None:
        """Append the end of a program's stderr, and only a line with the reason once the file is large."""
        if self._log is None:
            return
        end = "was stopped" if status is None else describe_exit(status)
        with self._log.open("a", encoding="utf-8", errors="backslashreplace") as log:
            if log.tell() >= _MAX_LOG_BYTES:
                log.write(f"--- problem {problem.id!r}: the program {end}\n")
                return
            cut = len(stderr) - _MAX_ENTRY
            which = f"the last {_MAX_ENTRY:,} characters of its stderr" if cut > 0 else "its stderr"
            log.write(f"--- problem {problem.id!r}: the program {end}; {which}:\n{stderr[max(0, cut) :]}\n")


def without_local_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose proxies, if any, are not used for the local host, where the model is served.

    The hosts are added to NO_PROXY and to no_proxy: clients prefer one of them, or read only one.
    """
    changed = dict(environment)
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        value = environment.get(name) or environment.get(other) or ""
        hosts = [host.strip() for host in value.split(",") if host.strip()]
        if hosts != ["*"]:  # all hosts; in a longer list, clients do not know the asterisk
            hosts += [host for host in _LOCAL_HOSTS if host not in hosts]
        changed[name] = ",".join(hosts)
    return changed


class FunctionAgent(Agent):
    """Calls `await function(problem, url)` in the event loop, which the function must not block.

    The function has the environment of torl: if a proxy is set (`http_proxy`), `no_proxy` must contain 127.0.0.1, or
    the function must tell its client to use none, such as `httpx.AsyncClient(trust_env=False)`.
    """

    def __init__(self, function: str) -> None:
        """Import the function.

        Args:
            function: Location of the function, as package.module:play.

        Raises:
            ConfigError: `function` cannot be imported or is not a coroutine function.
        """
        try:
            self._function = load_object(function)
        except ValueError as error:
            raise ConfigError(f"the agent {function!r}: {error}") from error
        if not inspect.iscoroutinefunction(self._function):
            raise ConfigError(
                f"the agent {function!r} must be declared with `async def`, or be a separate program (command)"
            )

    async def run(self, problem: Problem, url: str) -> str | None:
        with calling("agent", self._function, "", problem, url, fails_episode=True):
            answer: str | None = await self._function(problem, url)
            check_answer(answer)
        return answer


class _ProcessOutput:
    """The last bytes that a process writes, read without waiting for other processes that share its output."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tail = b""
        self.is_cut = False
        """Whether the process wrote more bytes."""

    def __enter__(self) -> Self:
        self._read_end, self.end = os.pipe()
        os.set_blocking(self._read_end, False)
        asyncio.get_running_loop().add_reader(self._read_end, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self.end)

    def text(self) -> str:
        """Return the text that has been written so far."""
        while self._read():
            pass
        return self._tail.decode(errors="replace").strip()

    def _read(self) -> bool:
        try:
            block = os.read(self._read_end, 1 << 16)
        except BlockingIOError:
            return False
        self._tail += block
        self.is_cut |= len(self._tail) > self._max_bytes
        self._tail = self._tail[-self._max_bytes :]
        return bool(block)


@contextmanager
def _question(text: str) -> Iterator[int]:
    """Open a file in memory with the question."""
    file = os.memfd_create("problem")
    try:
        os.write(file, text.encode())
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)
