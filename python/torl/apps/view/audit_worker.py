"""`python -m torl.apps.view.audit_worker PARENT RUN`: check trajectories of a run, one for each line of the input.

A separate process, because it loads the tokenizer's libraries and reads whole steps.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torl.apps.audit.one import TrajectoryAudit
from torl.errors import TorlError
from torl.runtime.processes.children import die_with_parent


async def answer(audit: TrajectoryAudit, request: dict[str, Any]) -> dict[str, Any]:
    """Return the checks of the trajectory at `line` of `path`, or an error."""
    try:
        checks = await audit.verify(Path(request["path"]), request["line"])
    except (TorlError, OSError) as error:
        return {"error": str(error)}
    return {"checks": [asdict(check) for check in checks]}


async def _serve(directory: Path) -> None:
    async with TrajectoryAudit(directory) as audit:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await answer(audit, json.loads(line))), flush=True)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    asyncio.run(_serve(Path(sys.argv[2])))
