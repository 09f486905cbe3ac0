"""Stopping a run whose tools no longer work, or whose engine holds another model than its learner."""

from collections import Counter
from collections.abc import Iterable, Mapping

from torl.errors import EngineError, SandboxError
from torl.records.metric_names import LOGPROB_GAP_MEAN
from torl.tools import BaseTool
from torl.types import OutcomeStatus, Trajectory

# Fewer calls than this say nothing about whether a tool works; above, half of them crashing is no accident.
_CALLS_TO_JUDGE = 16
_CRASH_SHARE = 0.5


async def require_working_tools(tools: Mapping[str, BaseTool], trajectories: Iterable[Trajectory]) -> None:
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


def require_matching_policies(metrics: Mapping[str, float], limit: float | None) -> None:
    """Stop rather than learn from tokens of another model, whatever the transfer of the weights said of itself.

    Args:
        metrics: those of a step; without the gap where nothing was learned.
        limit: `learner.max_logprob_gap`, in nats; None for none.

    Raises:
        EngineError: the mean gap of the step's sampled tokens is above the limit, or is no number.
    """
    gap = metrics.get(LOGPROB_GAP_MEAN)
    if gap is None or limit is None or gap <= limit:
        return
    raise EngineError(
        f"engine and learner disagree by {gap:.3g} nats on a sampled token, and learner.max_logprob_gap allows"
        f" {limit:g}: they hold different models. learner.verify_weights finds a transfer that spoils them; a kernel or"
        " precision of the engine's that differs shows on the first step; tokens of older versions are bounded by"
        " rollout.max_staleness. The last checkpoint is from before"
    )
