"""`python -m torl_lab.view.audit_worker PARENT TARGET [trust]`: check trajectories, one for each request.

A separate process, because it loads the tokenizer's libraries and reads whole steps. Without the configuration of a
run, trajectories are checked as those of a single file.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from torl.base.errors import TorlError
from torl.base.runtime.processes.children import JsonParent
from torl.base.trust import import_from_here
from torl_lab.view.sources import Target

TRUST: Final = "trust"
"""The argument that allows what the run's files name."""
Verify: TypeAlias = Callable[[Path, int | None], Awaitable[Sequence[Any]]]
"""A function of a file and a line, or None for all lines, to its checks (`torl_lab.audit.checks.Check`)."""


async def open_audit(target: Path, stack: AsyncExitStack, *, trust: bool) -> Verify:
    """Return the function that checks trajectories of a target. It needs libraries that the viewer itself does not."""
    if Target("", target).is_run:
        audit = import_module("torl_lab.audit.one").TrajectoryAudit(target, trust=trust)
        verify: Verify = (await stack.enter_async_context(audit)).verify
        return verify
    return partial(asyncio.to_thread, import_module("torl_lab.audit.one_file").verify_file)


async def answer(verify: Verify, request: dict[str, Any]) -> dict[str, Any]:
    """Return the checks of the trajectory at `line` of `path`, of all without a line, or an error."""
    try:
        checks = await verify(Path(request["path"]), request["line"])
    except (TorlError, OSError) as error:
        return {"error": str(error)}
    return {"checks": [asdict(check) for check in checks]}


async def _serve(parent: JsonParent, target: Path, *, trust: bool) -> None:
    requests = parent.requests()
    async with AsyncExitStack() as stack:
        verify: Verify | None = None
        while (request := await asyncio.to_thread(next, requests, None)) is not None:
            try:
                verify = verify or await open_audit(target, stack, trust=trust)
                reply = await answer(verify, request)
            except ModuleNotFoundError as error:
                reply = {"error": f"{error.name} is not installed: pip install 'torl[cpu]' or 'torl[gpu]'"}
            parent.send(reply)


if __name__ == "__main__":
    connected = JsonParent()
    trusted = sys.argv[3:] == [TRUST]
    if trusted:
        import_from_here()
    asyncio.run(_serve(connected, Path(sys.argv[2]), trust=trusted))
