"""Untrusted Python, run in WebAssembly by a pool of worker processes: each run in a fresh state, under hard limits.

Errors of the code are part of its `Execution`; failures of the host raise `torl.errors.SandboxError`.
"""

from torl.sandbox.execution import Execution, Interpreter, InterpreterSession, StatefulInterpreter
from torl.sandbox.guest import Confinement, cache_directory, prepare_guest
from torl.sandbox.notebook import Notebook
from torl.sandbox.pool import SandboxPool
from torl.sandbox.session import Session
from torl_sandbox.outcome import OutcomeStatus

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
