"""What the rest of torl needs of an interpreter, so that others can stand where the sandbox stands."""

from typing import Protocol, runtime_checkable

from torl.sandbox.execution import Execution


@runtime_checkable
class Interpreter(Protocol):
    """Runs code written by a model. `SandboxPool` is one."""

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """Run `code` from a fresh state; equal code and seed give an equal outcome, time-outs excepted.

        Raises:
            SandboxError: The host is broken. Nothing the code does raises.
        """
        ...


class InterpreterSession(Protocol):
    """A program whose parts run one after the other, each with the state that those before it left."""

    async def run_async(self, code: str) -> Execution:
        """Run the next part. A part that is stopped keeps what it or its whole statements did, or nothing.

        Raises:
            SandboxError: The host is broken.
        """
        ...

    def fork(self) -> "InterpreterSession":
        """Another program that continues from where this one is."""
        ...


@runtime_checkable
class StatefulInterpreter(Interpreter, Protocol):
    """An interpreter that can keep state between runs. `SandboxPool` is one."""

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """A program that has not begun."""
        ...
