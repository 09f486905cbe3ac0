"""Checks that stop a run: a tool that fails, weights that differ, a process that hangs."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torl.errors import EngineError, HangError, SandboxError
from torl.records.metric_names import LOGPROB_GAP_MEAN
from torl.runtime.processes.stacks import dump_own_stacks, dump_stacks
from torl.runtime.processes.supervision import first_error
from torl.tools import BaseTool
from torl.training.components import RunComponents
from torl.types import OutcomeStatus, Trajectory

Result = TypeVar("Result")

_MIN_CALLS = 16  # fewer calls do not show whether a tool works
_MAX_CRASH_FRACTION = 0.5


async def require_working_tools(tools: Mapping[str, BaseTool], trajectories: Iterable[Trajectory]) -> None:
    """Raise if a tool no longer works, according to its own check or to the outcomes of its calls.

    Raises:
        TorlError: The tool's check failed. If more than half of its calls in these trajectories crashed, this is a
            SandboxError.
    """
    for tool in tools.values():
        await tool.check()
    requests = [
        (call.request.tool, call.outcome.status)
        for trajectory in trajectories
        for call in trajectory.tool_calls
        if call.request is not None
    ]
    calls = Counter(name for name, _ in requests)
    crashes = Counter(name for name, status in requests if status is OutcomeStatus.CRASH)
    for name, count in calls.items():
        if count >= _MIN_CALLS and crashes[name] > _MAX_CRASH_FRACTION * count:
            raise SandboxError(f"{crashes[name]} of {count} calls of the tool {name!r} crashed in one step")


def require_matching_policies(metrics: Mapping[str, float], limit: float | None) -> None:
    """Raise if the log-probabilities of engine and learner show that they hold different weights.

    Args:
        metrics: Metrics of a step, without the gap if the step had no update.
        limit: `learner.max_logprob_gap`, in nats. None disables the check.

    Raises:
        EngineError: The mean gap of the step's sampled tokens is above the limit, or not a number.
    """
    gap = metrics.get(LOGPROB_GAP_MEAN)
    if gap is None or limit is None or gap <= limit:
        return
    raise EngineError(
        f"the mean logprob gap is {gap:.3g} nats (learner.max_logprob_gap = {limit:g}): engine and learner hold "
        "different weights. Use learner.verify_weights to detect a corrupted transfer; a kernel or precision that "
        "differs shows on the first step; rollout.max_staleness bounds the age of tokens. The last checkpoint was "
        "written before"
    )


class HangRecorder:
    """Writes the stacks of a run's processes once, when a hang is detected.

    A hung engine or learner writes its stacks before it is killed; this class covers all other processes. Graders and
    sandbox workers have timeouts of seconds and are replaced.

    Args:
        components: Components of the run, whose processes write to their own logs.
        controller_log: Log of this process.
    """

    def __init__(self, components: RunComponents, controller_log: Path) -> None:
        self._components = components
        self._log = controller_log
        self._recorded = False

    async def dump_stacks_on_hang(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. If it raises a `HangError`, write the stacks before the error is raised."""
        try:
            return await work
        except BaseException as error:
            if isinstance(first_error(error), HangError) and not self._recorded:
                self._recorded = True
                await self._dump_stacks()
            raise

    async def _dump_stacks(self) -> None:
        engine, learner = self._components.player.engine, self._components.learner
        dump_own_stacks(self._log, asyncio.get_running_loop())
        unresponsive, *_ = await asyncio.gather(
            asyncio.to_thread(dump_stacks, {**engine.processes_by_log, **learner.processes_by_log}),
            engine.dump_remote_stacks(),
            learner.dump_remote_stacks(),
        )
        missing = f", except for the unresponsive processes {unresponsive}" if unresponsive else ""
        self._components.console.warning(f"the stacks of all processes are in {self._log.parent}{missing}")
