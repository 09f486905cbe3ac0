"""Any program as an agent: a process for each episode."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from torl.agents.base import Agent
from torl.runtime.processes.children import TAIL_BYTES, command_words, describe_exit
from torl.types import Problem

MAX_OUTPUT_BYTES = 1 << 20
_ANY_KEY = "any"  # clients want one
_MAX_VARIABLE = 100_000  # bytes; Linux takes 128 KiB, with the name
# Becomes the program, which the kernel kills when torl ends, however that comes.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


class CommandAgent(Agent):
    """Starts a command in a process group of its own, which is killed when the program has ended or must.

    The question stands on its standard input. OPENAI_BASE_URL and OPENAI_API_KEY say where the model is asked, as
    OpenAI's own clients read them; TORL_PROBLEM is the question, where a variable can hold it, TORL_PROBLEM_ID its id.
    What it prints is the answer; nothing printed stands for what the model said last.
    """

    def __init__(self, command: str) -> None:
        """Find the program.

        Args:
            command: The program with its arguments, as a shell splits them; there is no shell.

        Raises:
            ConfigError: there is no such program.
        """
        self._command = command_words(command, "the agent's")
        self._starts = asyncio.Lock()

    async def run(self, problem: Problem, url: str) -> str | None:
        """What the program prints.

        Raises:
            RuntimeError: it failed, or prints without end; ends with its last words.
        """
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": _ANY_KEY,
            "TORL_PROBLEM_ID": problem.id,
        }
        if len(problem.question.encode()) <= _MAX_VARIABLE and "\0" not in problem.question:
            environment["TORL_PROBLEM"] = problem.question
        with (
            _question(problem.question) as question,
            _Output(MAX_OUTPUT_BYTES) as printed,
            _Output(TAIL_BYTES) as said,
        ):
            async with self._starts:  # each holds up the event loop for some milliseconds, which has others to serve
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *self._command),
                    stdin=question,
                    stdout=printed.end,
                    stderr=said.end,
                    env=environment,
                    start_new_session=True,
                )
            try:
                status = await process.wait()
            finally:
                _kill_group(process.pid)
                await process.wait()
            if status != 0:
                raise RuntimeError(f"it {describe_exit(status)}: {said.text() or '(it said nothing)'}")
            answer = printed.text()
            if printed.cut:
                raise RuntimeError(
                    f"it printed more than {MAX_OUTPUT_BYTES} bytes, and an answer is no log: write that to stderr"
                )
        return answer or None


class _Output:
    """The last bytes of what a process writes, read as it comes; nobody waits for who else holds its end open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = b""
        self.cut = False
        """Whether there was more."""

    def __enter__(self) -> Self:
        self._ours, self.end = os.pipe()
        os.set_blocking(self._ours, False)
        asyncio.get_running_loop().add_reader(self._ours, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        os.close(self.end)

    def text(self) -> str:
        """All that has been written by now."""
        while self._take():
            pass
        return self._kept.decode(errors="replace").strip()

    def _take(self) -> bool:
        try:
            piece = os.read(self._ours, 1 << 16)
        except BlockingIOError:
            return False
        self._kept += piece
        self.cut |= len(self._kept) > self._most
        self._kept = self._kept[-self._most :]
        return bool(piece)


@contextmanager
def _question(text: str) -> Iterator[int]:
    """A file in memory with the question."""
    file = os.memfd_create("problem")
    try:
        os.write(file, text.encode())
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def _kill_group(leader: int) -> None:
    """The process group of a program, which may be empty by now."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
