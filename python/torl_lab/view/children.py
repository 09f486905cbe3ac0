"""Child processes that answer requests in lines of JSON, so that heavy or endless work cannot block the server."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from torl.base.runtime.processes.children import describe_exit

MAX_LINE_BYTES: Final = 64 << 20


class ChildError(Exception):
    """A child process exited or sent an error."""


class JsonChild:
    """A child process. It ends with the thread that starts it, so start it in the main thread."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Set the program: a module of torl, which receives the parent's process id and the arguments."""
        self._module = module
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not exited."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process unless it is running."""
        if self.is_running:
            return
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            self._module,
            str(os.getpid()),
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent
            env=self._environment,
            limit=MAX_LINE_BYTES,
        )

    async def send(self, message: Any) -> None:
        """Send a line.

        Raises:
            ChildError: The process has exited.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChildError(await self._exit_reason()) from error

    async def receive(self) -> Any:
        """Return the next message.

        Raises:
            ChildError: The process has exited.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ChildError(await self._exit_reason())
        return json.loads(line)

    async def messages(self) -> AsyncIterator[Any]:
        """Yield all messages until the process closes its output."""
        with suppress(ChildError):
            while True:
                yield await self.receive()

    async def stop(self) -> None:
        """Kill the process, if it is running."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _exit_reason(self) -> str:
        assert self._process is not None
        return f"{self._module} {describe_exit(await self._process.wait())}"
