"""What the rest of torl needs of an interpreter, so that others can stand where the sandbox stands."""

from typing import Protocol, runtime_checkable

from torl.types import Outcome


@runtime_checkable
class Interpreter(Protocol):
    """Runs code written by a model. `SandboxPool` is one."""

    async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
        """Run `code` from a fresh state; equal code and seed give an equal outcome, time-outs excepted.

        Raises:
            SandboxError: The host is broken. Nothing the code does raises.
        """
        ...
