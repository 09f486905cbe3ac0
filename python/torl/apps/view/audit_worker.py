"""`python -m torl.apps.view.audit_worker PARENT RUN`: check trajectories of a run, one for each line of the input.

A separate process, because it loads the tokenizer's libraries and reads whole steps.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from torl.errors import TorlError
from torl.runtime.processes.children import die_with_parent


async def answer(audit: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return the checks of the trajectory at `line` of `path`, of all without a line, or an error.

    `audit` is a `TrajectoryAudit`.
    """
    try:
        checks = await audit.verify(Path(request["path"]), request["line"])
    except (TorlError, OSError) as error:
        return {"error": str(error)}
    return {"checks": [asdict(check) for check in checks]}


async def _serve(directory: Path) -> None:
    async with AsyncExitStack() as stack:
        audit: Any = None
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                # Needs libraries that the viewer itself does not.
                audit = audit or await stack.enter_async_context(
                    import_module("torl.apps.audit.one").TrajectoryAudit(directory)
                )
                reply = await answer(audit, json.loads(line))
            except ModuleNotFoundError as error:
                reply = {"error": f"{error.name} is not installed: pip install 'torl[cpu]' or 'torl[gpu]'"}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    asyncio.run(_serve(Path(sys.argv[2])))
