"""Python as an environment of OpenEnv: what its coding environment takes and gives, executed in the pool."""

from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State

from torl.apps.serve.admission import Admission
from torl.apps.serve.fusion_answers import command_result
from torl.apps.serve.metrics import ServerMetrics
from torl.apps.serve.sessions import SessionStore
from torl.sandbox.options import CellOptions
from torl.sandbox.pool import SandboxPool

_STOPPED = 124  # what a shell gives for a command that `timeout` stopped


class CodeAction(Action):
    """A part of a program."""

    code: str


class CodeObservation(Observation):
    """What it printed, with the value of its last statement, and how it ended."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(State):
    """How far an episode is."""

    last_exit_code: int = 0


class SharedState:
    """What the environments of a door share."""

    def __init__(self, pool: SandboxPool, sessions: SessionStore, admission: Admission) -> None:
        self.pool = pool
        self.sessions = sessions
        self.admission = admission
        self.metrics = ServerMetrics(pool, admission)


class PythonEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    """An episode: each step runs with the state that those before it left. It has no reward and no end of its own.

    `reset` begins another one; so does the first step where nobody asked for it.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, shelf: SharedState) -> None:
        super().__init__()
        self._shelf = shelf
        self._state = CodeState()
        self._session: str | None = None

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CodeObservation:
        """Begin an episode; `seed` is of everything random in it."""
        return self.reset(seed, episode_id)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CodeObservation:
        """The same."""
        self.close()
        self._session = self._shelf.sessions.add(self._shelf.pool.session(seed=seed or 0))
        self._state = CodeState(episode_id=episode_id)
        return CodeObservation()

    async def step_async(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Run a part; what it does wrong is in the observation.

        Args:
            action: the code.
            timeout_s: CPU seconds, where that is less than the door's.

        Raises:
            OverloadedError: the door answers as many steps as it may.
            RuntimeError: the session was the one unused for longest, and had to go.
            SandboxError: the host is broken.
        """
        with self._shelf.admission.admit(len(action.code)):
            if self._session is None:
                self.reset()
            session = self._shelf.sessions.get(self._session or "")
            if session is None:
                raise RuntimeError(
                    "the session is over: unused for too long, or one of too many; reset to begin another"
                )
            options: CellOptions = {"value": True}
            if timeout_s is not None:
                options["cpu_seconds"] = timeout_s
            outcome = await session.run_async(action.code, **options)
        self._shelf.sessions.evict()
        self._shelf.metrics.answered("step", outcome.status.value)
        result = command_result(outcome)
        code = _STOPPED if result["return_code"] is None else result["return_code"]
        self._state.step_count += 1
        self._state.last_exit_code = code
        value = "" if outcome.value is None else f"{outcome.value}\n"
        return CodeObservation(stdout=result["stdout"] + value, stderr=result["stderr"], exit_code=code)

    def step(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Not here: the door asks for `step_async`."""
        raise NotImplementedError("call step_async")

    @property
    def state(self) -> CodeState:
        """How far the episode is."""
        return self._state

    def close(self) -> None:
        """Forget the episode."""
        if self._session is not None:
            self._shelf.sessions.drop(self._session)
            self._session = None
