"""Untrusted Python, run in WebAssembly by a pool of worker processes: each run in a fresh state, under hard limits.

What the code does wrong is an `Outcome`; what the host does wrong is a `torl.errors.SandboxError`.
"""

from torl.sandbox.guest import cache_directory, prepare_guest
from torl.sandbox.interpreter import Interpreter
from torl.sandbox.pool import SandboxPool
from torl.types import Outcome, OutcomeStatus

__all__ = ["Interpreter", "Outcome", "OutcomeStatus", "SandboxPool", "cache_directory", "prepare_guest"]
