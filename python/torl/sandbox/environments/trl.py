"""Python as an environment of TRL's `GRPOTrainer(environment_factory=...)`."""

from collections.abc import Callable
from typing import Any

from torl.errors import SandboxError
from torl.sandbox.pool import SandboxPool
from torl.sandbox.session import Session
from torl.sandbox.transcript import shown


class PythonEnvironment:
    """One rollout's interpreter: what a call leaves, the next one finds, until TRL resets it for another rollout.

    TRL takes every public method but `reset` and `get_reward` for a tool, so there is one. It adds nothing to the
    reward: pass `reward_funcs`.
    """

    def __init__(self, pool: SandboxPool) -> None:
        """`pool` belongs to the caller."""
        self._pool = pool
        self._session: Session = pool.session()
        self._broken: SandboxError | None = None

    def reset(self, **_: Any) -> None:
        """Forget what the last rollout left. The columns of the example are not looked at."""
        self._session = self._pool.session()

    async def python(self, code: str) -> str:
        """
        Run Python code and return what it prints, the value of its last line, and its traceback if it fails. Variables
        stay until the next call. numpy, scipy, sympy and pandas are there.

        Args:
            code: The Python code.

        Returns:
            What an interactive interpreter would show.
        """
        try:
            return shown(await self._session.run_async(code, value=True))
        except SandboxError as error:
            self._broken = error
            raise

    def get_reward(self) -> float:
        """Nothing; but TRL asks before it learns, and shows the model whatever a tool raises.

        Raises:
            SandboxError: the host broke under a call of this rollout.
        """
        if self._broken is not None:
            raise self._broken
        return 0.0


def environment_factory(pool: SandboxPool) -> Callable[[], PythonEnvironment]:
    """What `GRPOTrainer` takes; all rollouts share `pool`."""
    return lambda: PythonEnvironment(pool)
