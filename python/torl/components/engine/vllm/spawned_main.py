"""Main module of the processes that vLLM spawns: imports vLLM's core without garbage collection.

Python runs it in a spawned process before it unpickles the function to call, which would import the same modules.
Otherwise it would run the program's own main module, from which the process needs nothing.
"""

import os

from torl.base.runtime.processes.resources import uncollected_imports
from torl.components.engine.vllm.process_setup import LOG_VARIABLE, log_to_file

if __name__ == "__mp_main__":
    log_to_file(os.environ[LOG_VARIABLE])  # before the import, which logs
    with uncollected_imports():
        import vllm.v1.engine.core  # noqa: F401
