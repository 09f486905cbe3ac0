"""Untrusted Python, run in WebAssembly by a pool of worker processes: each run in a fresh state, under hard limits.

    from torl_sandbox import SandboxPool

    with SandboxPool(workers=4) as pool:
        print(pool.run("print(6 * 7)").stdout)

Errors of the code are part of its `Execution`; failures of the host raise `SandboxError`. Names are imported at their
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torl_sandbox.errors import OutcomeStatus as OutcomeStatus
    from torl_sandbox.errors import SandboxError as SandboxError
    from torl_sandbox.execution import Execution as Execution
    from torl_sandbox.execution import Interpreter as Interpreter
    from torl_sandbox.execution import InterpreterSession as InterpreterSession
    from torl_sandbox.execution import StatefulInterpreter as StatefulInterpreter
    from torl_sandbox.guest import Confinement as Confinement
    from torl_sandbox.guest import cache_directory as cache_directory
    from torl_sandbox.guest import prepare_guest as prepare_guest
    from torl_sandbox.notebook import Notebook as Notebook
    from torl_sandbox.options import RunOptions as RunOptions
    from torl_sandbox.pool import SandboxPool as SandboxPool
    from torl_sandbox.session import Session as Session

__version__ = "0.1.0"

# The modules of the names above. torl imports the light ones at every start, without the extension.
_MODULES = {
    "errors": "OutcomeStatus SandboxError",
    "execution": "Execution Interpreter InterpreterSession StatefulInterpreter",
    "guest": "Confinement cache_directory prepare_guest",
    "notebook": "Notebook",
    "options": "RunOptions",
    "pool": "SandboxPool",
    "session": "Session",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'torl_sandbox' has no attribute {name!r}")
    value = getattr(import_module(f"torl_sandbox.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
