"""The experiments that prove the cause of a finding: a step is made again, with one setting changed, and measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Any, Final

from torl.run.records import metric_names as names
from torl.training.health import coarser_dtype, engine_options
from torl_lab.doctor.history import Step, StepHistory
from torl_lab.doctor.registry import CHECKS


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment on one step.

    Attributes:
        metric: Measure: the name of a metric, or words.
        shows: Whether a value of a run shows the problem.
        cause: Cause that the change proves or refutes, in words.
        changes: Function that returns the changed settings by dotted name. None if the step is only made again.
        of: Function of a step that returns the measure, or None if the step lacks it. None for the metric.
    """

    metric: str
    shows: Callable[[StepHistory, float], bool]
    cause: str = ""
    changes: Callable[[StepHistory], Mapping[str, Any]] | None = None
    of: Callable[[Step], float | None] | None = None

    def measure(self, step: Step) -> float | None:
        """Return the measure of a step; None if the step lacks it."""
        return step.metrics.get(self.metric) if self.of is None else self.of(step)


def _above(limit: float) -> Callable[[StepHistory, float], bool]:
    return lambda history, value: value > limit


def _below(limit: float) -> Callable[[StepHistory, float], bool]:
    return lambda history, value: value < limit


def _scaled(setting: str, factor: float) -> Callable[[StepHistory], Mapping[str, Any]]:
    """Return the change of a number by a factor."""

    def changes(history: StepHistory) -> Mapping[str, Any]:
        value: Any = history.config
        for name in setting.split("."):
            value = getattr(value, name)
        return {setting: type(value)(value * factor)}

    return changes


def _same_precision(history: StepHistory) -> Mapping[str, Any]:
    precision = history.config.learner.dtype
    return {} if engine_options(history.config).dtype == precision else {"engine.dtype": precision}


def _without_selection(history: StepHistory) -> Mapping[str, Any]:
    """Return the change that keeps all groups and members, and their loss."""
    found = history.config.selection
    changes: dict[str, Any] = {name: {} for name in ("mask", "members", "groups") if getattr(found, name)}
    if found.dynamic_sampling and changes:  # without filters, no prompt is played in place of a dropped one
        changes["max_rounds"] = 1
    return {f"selection.{name}": value for name, value in changes.items()}


def _gap(step: Step) -> float | None:
    return None if step.tokens is None or not step.tokens.compared else step.tokens.gap


def _confident(step: Step) -> float | None:
    return None if step.tokens is None or not step.tokens.compared else step.tokens.confident


def _ungraded(step: Step) -> float | None:
    wrong = (each.failure is not None or (each.exact and not each.correct) for each in step.members)
    return sum(wrong) if step.members else None


def _limit(check: str, number: int = 0) -> float:
    return CHECKS[check].limits[number].value


def _is_wide(history: StepHistory, gap: float) -> bool:
    is_exact = coarser_dtype(history.config) == "float32"
    return gap > (_limit("numeric-gap", 2) if is_exact else log(_limit("numeric-gap")))


def _times_median(check: str, name: str) -> Callable[[StepHistory, float], bool]:
    return lambda history, value: value > _limit(check) * median(history.series(name))


_GAP: Final = "mean gap between engine and learner, in nats"
EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "stale-engine": Experiment(_GAP, lambda history, gap: gap > 3 * (_gap(history.steps[0]) or 0.0) + 1e-6, of=_gap),
    "wrong-engine": Experiment("tokens of which only the engine is sure", _above(0), of=_confident),
    "numeric-gap": Experiment(_GAP, _is_wide, "the precision of the engine", _same_precision, _gap),
    "rate-without-effect": Experiment(
        names.CHANGED_WEIGHTS,
        _below(_limit("rate-without-effect")),
        "the learning rate",
        _scaled("learner.learning_rate", 1e4),
    ),
    "clip-saturation": Experiment(
        names.CLIP_FRACTION, _above(0.3), "the learning rate", _scaled("learner.learning_rate", 0.1)
    ),
    "no-gradient": Experiment(
        names.GRADIENT_NORM,
        _below(1e-12),
        "the filters and masks of the selection",
        _without_selection,
        lambda step: step.metrics.get(names.GRADIENT_NORM, 0.0),
    ),
    "gradient-spikes": Experiment(names.GRADIENT_NORM, _times_median("gradient-spikes", names.GRADIENT_NORM)),
    "truncation": Experiment(
        names.TRUNCATED, _above(_limit("truncation")), "the token limit", _scaled("rollout.max_response_tokens", 2)
    ),
    "graded-crash": Experiment(
        "crashed calls",
        _above(0),
        of=lambda step: sum(member.crashed for member in step.members) if step.members else None,
    ),
    "lost-episodes": Experiment("failed episodes", _above(0), of=lambda step: step.metrics.get(names.FAILED_EPISODES)),
    "ungraded-answers": Experiment("answers that the grader failed on", _above(0), of=_ungraded),
    "stall": Experiment(names.TIME_STEP, _times_median("stall", names.TIME_STEP)),
}
"""Experiments by the checks whose findings they prove."""
