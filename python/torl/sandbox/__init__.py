"""Untrusted Python, run in WebAssembly by a pool of worker processes: each run in a fresh state, under hard limits.

What the code does wrong is in its `Execution`; what the host does wrong is a `torl.errors.SandboxError`.
"""

from torl.sandbox.execution import Execution
from torl.sandbox.guest import cache_directory, prepare_guest
from torl.sandbox.interpreter import Interpreter, InterpreterSession, StatefulInterpreter
from torl.sandbox.notebook import Notebook
from torl.sandbox.pool import Confinement, SandboxPool
from torl.sandbox.session import Session
from torl.types import OutcomeStatus

__all__ = [
    "Confinement",
    "Execution",
    "Interpreter",
    "InterpreterSession",
    "Notebook",
    "OutcomeStatus",
    "SandboxPool",
    "Session",
    "StatefulInterpreter",
    "cache_directory",
    "prepare_guest",
]
