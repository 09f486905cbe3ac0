"""Stopping a run whose tools no longer work."""

from collections import Counter
from collections.abc import Iterable, Mapping

from torl.errors import SandboxError
from torl.tools import Tool
from torl.types import OutcomeStatus, Trajectory

# Fewer calls than this say nothing about whether a tool works; above, half of them crashing is no accident.
_CALLS_TO_JUDGE = 16
_CRASH_SHARE = 0.5


async def require_working_tools(tools: Mapping[str, Tool], trajectories: Iterable[Trajectory]) -> None:
    """Stop rather than train with a tool that no longer works, whatever it reports of itself.

    Raises:
        TorlError: a tool's own check failed; a SandboxError if half of its calls in these trajectories crashed.
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
        if count >= _CALLS_TO_JUDGE and crashes[name] > _CRASH_SHARE * count:
            raise SandboxError(f"{crashes[name]} of {count} calls of the tool {name!r} crashed in one step")
