"""Python as a toolset of verifiers: one tool server for all rollouts of a taskset.

    class MyTaskset(vf.Taskset[MyTask, MyConfig]):
        @classmethod
        def toolsets(cls, config):
            return [PythonToolset(PythonToolsetConfig())]

`MyTask` is a `vf.Task[MyData, PythonState]`, or has a state derived from `PythonState`, which stores the name of the
rollout's session. verifiers starts the server as `python -m torl.components.interop.verifiers`.
"""

import os
import signal

import verifiers.v1 as vf
from pydantic import ConfigDict

from torl.base.errors import SandboxError
from torl_sandbox.execution import render_transcript
from torl_sandbox.servers.sessions import SessionStore
from torl_sandbox.servers.settings import PoolSettings, SessionSettings
from torl_sandbox.session import Session


class PythonToolsetConfig(vf.SharedToolsetConfig):
    """Settings of the server's pool and of its session store."""

    workers: int | None = None
    cpu_seconds: float = 10.0
    memory_mib: int = 1024
    output_kib: int = 1024
    max_sessions: int = 1024
    max_session_mib: int = 1024
    session_ttl_seconds: float = 3600.0


class PythonState(vf.State):
    """The state of a rollout between calls."""

    model_config = ConfigDict(extra="allow")  # fields of the task's own state are returned unchanged

    python_session: str | None = None
    """Name of the rollout's session; None before the first call."""


class PythonToolset(vf.Toolset[PythonToolsetConfig, PythonState]):
    """The tool `python`, executed in one pool."""

    TOOL_PREFIX = None

    async def setup(self) -> None:
        """Start the pool.

        Raises:
            SandboxError: The guest is missing, or the workers do not start.
        """
        config = self.config
        settings = PoolSettings(config.workers, config.cpu_seconds, config.memory_mib, config.output_kib)
        self._pool = self._exit_stack.enter_context(settings.open())
        self._sessions = SessionStore(
            SessionSettings(config.max_sessions, config.max_session_mib, config.session_ttl_seconds)
        )

    @vf.tool
    async def python(self, code: str) -> str:
        """Run Python code and return what it prints, the value of its last line, and its traceback if it fails.
        Variables stay until the next call. numpy, scipy, sympy and pandas are there."""
        name, session = self._open_session()
        try:
            outcome = await session.run_async(code, value=True)
        except SandboxError:
            # A failure of the sandbox must not reach the model: without a server, the rollout fails.
            os.kill(os.getpid(), signal.SIGTERM)
            raise
        self._sessions.evict()
        self.state.python_session = name
        return render_transcript(outcome)

    def _open_session(self) -> tuple[str, Session]:
        state = self.state
        if "python_session" not in state.model_fields_set:
            raise RuntimeError("the rollout's state has no python_session: make the task a vf.Task[Data, PythonState]")
        if state.python_session is None:
            session = self._pool.session()
            return self._sessions.add(session), session
        existing = self._sessions.get(state.python_session)
        if existing is None:
            raise RuntimeError(
                "the session was evicted: it was unused for too long, or the server has too many sessions"
            )
        return state.python_session, existing


if __name__ == "__main__":
    PythonToolset.run()
