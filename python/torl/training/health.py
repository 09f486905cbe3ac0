"""Checks that stop a run: a tool that fails, weights that differ, a process that hangs."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torl.base.errors import EngineError, HangError, SandboxError
from torl.base.runtime.processes.hangs import dump_own_stacks, dump_stacks
from torl.base.runtime.processes.supervision import first_error
from torl.base.types import OutcomeStatus, Trajectory
from torl.components.engine import Engine, EngineOptions
from torl.components.tools import BaseTool
from torl.learner.learner import Learner
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records.metric_names import LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE
from torl.training.components import RunComponents

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


_MIN_LIMITS = {"float32": 2e-4, "bfloat16": 0.02, "quantized": 0.06}
"""Gaps that rounding may reach in any step, in nats, by the coarser of engine's and learner's precision."""
_MIN_LIMIT_TF32 = 2.5e-3  # kernels of GPUs may round the inputs of float32 products to 10 bits
_MAX_GROWTH = 5.0  # of the first step's gap, which differs between models, mixtures of experts above all


class PolicyComparison:
    """The check that engine and learner hold the same weights: their log-probabilities of on-policy tokens.

    The tokens are those of a step's batch, and those of the probe (`torl.training.probe`) in runs that have one. The
    first gap of a run is that of the initial weights, which both read from files. It shows what rounding alone makes of
    this model, and bounds the gaps after transfers.
    """

    def __init__(self, config: TrainConfig, *, on_gpus: bool, first_gaps: Mapping[str, float] | None = None) -> None:
        """Derive the limit from the configuration.

        Args:
            config: Configuration of the run.
            on_gpus: Whether the run computes on GPUs.
            first_gaps: First gap of each metric, if the run resumes. Missing ones are those of the next steps.
        """
        self._dtype = coarser_dtype(config)
        self._min_limit = _MIN_LIMITS[self._dtype]
        if on_gpus:
            self._min_limit = max(self._min_limit, _MIN_LIMIT_TF32)
        self._configured = config.learner.max_logprob_gap
        self._exact = inexact_logprobs(config) is None
        self._first_gaps = dict(first_gaps or {})

    def require_match(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Return a warning if the first gap of a run is above rounding, for which the model may be the reason.

        Args:
            step: Number of the step, from 0.
            metrics: Metrics of the step, without a gap if it had no update, no on-policy token or no probe.

        Raises:
            EngineError: A gap is above the limit, or not a number: engine and learner hold different weights.
        """
        warning = None
        for name, is_compared in ((LOGPROB_GAP_PROBE, True), (LOGPROB_GAP_ON_POLICY, self._exact)):
            gap = metrics.get(name)
            if gap is None or not (is_compared or self._configured):
                continue
            first = self._first_gaps.get(name)
            limit = self._limit(first)
            if not gap <= limit:
                raise EngineError(self._message(step, gap, first, limit))
            if first is None:
                self._first_gaps[name] = gap
                if self._configured is None and gap > self._min_limit:
                    warning = (
                        f"step {step + 1}: engine and learner differ by {gap:.2g} nats in the logprobs of the initial "
                        f"policy ({name}), more than {self._dtype} usually rounds ({self._min_limit:g})"
                    )
        return warning

    def _limit(self, first: float | None) -> float:
        if self._configured is not None:
            return self._configured
        if first is None:
            return _MAX_GROWTH * self._min_limit
        return max(_MAX_GROWTH * first, self._min_limit)

    def _message(self, step: int, gap: float, first: float | None, limit: float) -> str:
        before = "it is the first" if first is None else f"the first was {first:.2g}"
        origin = self._dtype if self._configured is None else "learner.max_logprob_gap"
        causes = (
            "weights or adapters that did not reach the engine, or reached the wrong place (learner.verify_weights "
            "detects a corrupted transfer)"
        )
        if first is None:
            causes = f"a model that vLLM and transformers compute differently, or {causes}"
        return (
            f"step {step + 1}: engine and learner hold different policies: their logprobs of on-policy tokens differ "
            f"by {gap:.2g} nats on average; {before}, and the limit is {limit:.2g} ({origin}). Likely causes: "
            f"{causes}. The last checkpoint was written before. Raise learner.max_logprob_gap only for an engine that "
            "rounds more, such as a quantized one"
        )


def coarser_dtype(config: TrainConfig) -> str:
    """Return the precision that rounds most: the engine's, the learner's, or that of a quantized cache or weights."""
    options = engine_options(config)
    if options.rounds_below_dtype:
        return "quantized"
    return config.learner.dtype if options.dtype == "float32" else options.dtype


def rounding_limit(config: TrainConfig) -> float:
    """Return the mean gap that rounding may reach in any step, in nats, by the precision of engine and learner."""
    return _MIN_LIMITS[coarser_dtype(config)]


def inexact_logprobs(config: LearningConfig) -> str | None:
    """Return the reason why the engine's log-probabilities differ from the policy's by configuration, or None."""
    if config.rollout.top_p < 1:
        return "top_p is below 1: the engine's logprobs belong to a truncated distribution"
    return stale_logprobs(config)


def stale_logprobs(config: LearningConfig) -> str | None:
    """Return the reason why the engine's log-probabilities depend on several policies by configuration, or None."""
    if config.rollout.max_staleness and engine_options(config).keeps_stale_cache:
        return "the engine keeps a stale KV cache on weight updates: its logprobs depend on older policies"
    return None


def engine_options(config: LearningConfig) -> EngineOptions:
    """Return the options of the run's engine, or the defaults for a custom engine without these options."""
    options = config.engine.options
    return options if isinstance(options, EngineOptions) else EngineOptions()


class HangRecorder:
    """Writes the stacks of a run's processes once, when a hang is detected.

    A hung engine or learner writes its stacks before it is killed; this class covers all other processes. Graders and
    sandbox workers have timeouts of seconds and are replaced.

    Args:
        components: Components of the run, whose processes write to their own logs.
        controller_log: Log of this process.
    """

    def __init__(self, components: RunComponents[Any], controller_log: Path) -> None:
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
        sides: list[Learner | Engine] = [self._components.learner]
        if self._components.playing is not None:
            sides.append(self._components.player.engine)
        dump_own_stacks(self._log, asyncio.get_running_loop())
        logs = {log: processes for side in sides for log, processes in side.processes_by_log.items()}
        unresponsive, *_ = await asyncio.gather(
            asyncio.to_thread(dump_stacks, logs), *(side.dump_remote_stacks() for side in sides)
        )
        missing = f", except for the unresponsive processes {unresponsive}" if unresponsive else ""
        self._components.console.warning(f"the stacks of all processes are in {self._log.parent}{missing}")
