"""What a run leaves behind when a part of it lives and gives no answer: what every process was doing."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from torl.errors import HangError
from torl.runtime.processes.stacks import dump_own_stacks, dump_stacks
from torl.runtime.processes.supervision import first_error
from torl.training.parts import RunComponents

Result = TypeVar("Result")


class HangRecorder:
    """Writes the stacks of a run's processes, once: those of the controller to its own log, others to theirs.

    A part that has hung writes its own before it is ended; this is for all that are left. Graders and the workers of
    the sandbox have deadlines of seconds, and are replaced.
    """

    def __init__(self, parts: RunComponents, controller_log: Path) -> None:
        """Write nothing yet."""
        self._parts = parts
        self._log = controller_log
        self._recorded = False

    async def dump_stacks_on_hang(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`; where it raises because something hangs, the stacks are written before it ends."""
        try:
            return await work
        except BaseException as error:
            if isinstance(first_error(error), HangError) and not self._recorded:
                self._recorded = True
                dump_own_stacks(self._log, asyncio.get_running_loop())
                logs = {**self._parts.player.engine.processes_by_log, **self._parts.learner.processes_by_log}
                silent, *_ = await asyncio.gather(
                    asyncio.to_thread(dump_stacks, logs),
                    self._parts.player.engine.dump_remote_stacks(),
                    self._parts.learner.dump_remote_stacks(),
                )
                unheard = f"; the processes {silent} wrote none" if silent else ""
                self._parts.console.warning(f"the stacks of all processes are in {self._log.parent}{unheard}")
            raise
