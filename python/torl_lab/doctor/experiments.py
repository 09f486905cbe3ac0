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
        metric: Measure, in words.
        measure: Function of a step that returns the measure; None if the step lacks it.
        shows: Whether a value of a run shows the problem.
        cause: Cause that the change proves or refutes, in words.
        changes: Function that returns the changed settings by dotted name. None if the step is only made again.
    """

    metric: str
    measure: Callable[[Step], float | None]
    shows: Callable[[StepHistory, float], bool]
    cause: str = ""
    changes: Callable[[StepHistory], Mapping[str, Any]] | None = None


_SELECTING: Final = ("mask", "members", "groups")


def _metric(name: str) -> Callable[[Step], float | None]:
    return lambda step: step.metrics.get(name)


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
    changes: dict[str, Any] = {name: {} for name in _SELECTING if getattr(found, name)}
    if found.dynamic_sampling and changes:  # without filters, no prompt is played in place of a dropped one
        changes["max_rounds"] = 1
    return {f"selection.{name}": value for name, value in changes.items()}


def _confident(step: Step) -> float | None:
    return None if step.tokens is None or not step.tokens.compared else step.tokens.confident


def _gap(step: Step) -> float | None:
    return None if step.tokens is None or not step.tokens.compared else step.tokens.gap


def _crashed(step: Step) -> float | None:
    return sum(member.crashed for member in step.members) if step.members else None


def _ungraded(step: Step) -> float | None:
    wrong = (each.failure is not None or (each.exact and not each.correct) for each in step.members)
    return sum(wrong) if step.members else None


def _limit(check: str, number: int = 0) -> float:
    return CHECKS[check].limits[number].value


def _is_wide(history: StepHistory, gap: float) -> bool:
    return gap > (
        _limit("numeric-gap", 2) if coarser_dtype(history.config) == "float32" else log(_limit("numeric-gap"))
    )


def _times_median(check: str, name: str) -> Callable[[StepHistory, float], bool]:
    return lambda history, value: value > _limit(check) * median(history.series(name))


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "stale-engine": Experiment(
        "mean gap between engine and learner, in nats",
        _gap,
        lambda history, gap: gap > 3 * (_gap(history.steps[0]) or 0.0) + 1e-6,
    ),
    "wrong-engine": Experiment("tokens of which only the engine is sure", _confident, _above(0)),
    "numeric-gap": Experiment(
        "mean gap between engine and learner, in nats",
        _gap,
        _is_wide,
        "the precision of the engine",
        _same_precision,
    ),
    "rate-without-effect": Experiment(
        names.CHANGED_WEIGHTS,
        _metric(names.CHANGED_WEIGHTS),
        _below(_limit("rate-without-effect")),
        "the learning rate",
        _scaled("learner.learning_rate", 1e4),
    ),
    "clip-saturation": Experiment(
        names.CLIP_FRACTION,
        _metric(names.CLIP_FRACTION),
        _above(0.3),
        "the learning rate",
        _scaled("learner.learning_rate", 0.1),
    ),
    "no-gradient": Experiment(
        names.GRADIENT_NORM,
        lambda step: step.metrics.get(names.GRADIENT_NORM, 0.0),
        _below(1e-12),
        "the filters and masks of the selection",
        _without_selection,
    ),
    "gradient-spikes": Experiment(
        names.GRADIENT_NORM,
        _metric(names.GRADIENT_NORM),
        _times_median("gradient-spikes", names.GRADIENT_NORM),
    ),
    "truncation": Experiment(
        names.TRUNCATED,
        _metric(names.TRUNCATED),
        _above(_limit("truncation")),
        "the token limit",
        _scaled("rollout.max_response_tokens", 2),
    ),
    "graded-crash": Experiment("crashed calls", _crashed, _above(0)),
    "lost-episodes": Experiment("failed episodes", _metric(names.FAILED_EPISODES), _above(0)),
    "ungraded-answers": Experiment("answers that the grader failed on", _ungraded, _above(0)),
    "stall": Experiment(names.TIME_STEP, _metric(names.TIME_STEP), _times_median("stall", names.TIME_STEP)),
}
"""Experiments by the checks whose findings they prove."""
