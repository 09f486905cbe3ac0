"""The rows of `metrics.jsonl`: their kinds, their order, and the metrics that the audit does not compute again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from torl.base.errors import RecordError
from torl.run.config import FinetuneConfig, LearningConfig, TrainConfig
from torl.run.config.training import provides_itself
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE
from torl.run.records.reading import read_metrics
from torl_lab.audit.checks import Check

_KINDS = (names.TIME_CHECKPOINT, names.TIME_EVALUATION, names.TIME_STEP)
"""The times that only rows of one kind have, in the order of the rows of a number of steps."""


@dataclass(frozen=True, slots=True)
class MetricRows:
    """The rows of a run.

    Attributes:
        steps: Rows of steps.
        evaluations: Rows of evaluations, by the number of steps before.
        order: Step and kind of each row, in the order of the file.
    """

    steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    evaluations: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path, before: int, check: Check, *, supervised: bool) -> Self:
        """Read the rows before a step, of fine-tuning if `supervised`; count damaged and unknown ones."""
        found = cls()
        for row in _rows(directory, check):
            step, kind = row.get("step"), _kind_of(row, supervised=supervised)
            if not isinstance(step, int) or isinstance(step, bool) or step < 0:
                check.add(False, f"{METRICS_FILE}: expected a step in each row, found {step!r}")
            elif kind is None:
                check.add(
                    False, f"{METRICS_FILE}: expected a row of a step, an evaluation or a checkpoint, found {row}"
                )
            elif step < before:
                found.order.append((step, kind))
                kinds = {str(names.TIME_STEP): found.steps, str(names.TIME_EVALUATION): found.evaluations}
                rows = kinds.get(kind, {})
                if step in rows:
                    check.add(False, f"{METRICS_FILE}: expected one row of step {step} with {kind}, found two")
                rows[step] = row
        return found

    def check_order(self, check: Check, last: int) -> None:
        """Check that each row is once in the file, in the order of a run with `last` steps."""

        def place(row: tuple[int, str]) -> tuple[int, int]:
            step, kind = row
            order = _KINDS if step < last else (names.TIME_EVALUATION, names.TIME_CHECKPOINT, names.TIME_STEP)
            return step, order.index(kind)

        for one, other in pairwise(self.order):
            if place(one) >= place(other):
                found = " and ".join(f"step {step} with {kind}" for step, kind in (one, other))
                check.add(False, f"{METRICS_FILE}: expected rows in the order of the run, each once, found {found}")


def _rows(directory: Path, check: Check) -> list[dict[str, Any]]:
    try:
        return read_metrics(directory)
    except RecordError as error:
        check.add(False, str(error))
        return []


def _kind_of(row: Mapping[str, Any], *, supervised: bool) -> str | None:
    """Return the time that only rows of this kind have; None if a row has several, none, or metrics of another kind."""
    kinds = [name for name in _KINDS if name in row]
    others = row.keys() - {"step", "time", *kinds}
    validation = (names.VALIDATION_LOSS, names.VALIDATION_TOKENS) if supervised else ()
    evaluated = {name for name in others if names.split_evaluation(name) or name in validation}
    allowed = {names.TIME_STEP: others - evaluated, names.TIME_EVALUATION: evaluated, names.TIME_CHECKPOINT: set()}
    return kinds[0] if len(kinds) == 1 and others == allowed[kinds[0]] else None


BOUNDED: Final = (
    names.ENTROPY,
    names.CLIP_FRACTION,
    names.LOGPROB_GAP_MEAN,
    names.LOGPROB_GAP_MAX,
    names.LOGPROB_GAP_KL,
    names.LOGPROB_GAP_ON_POLICY,
    names.IMPORTANCE_WEIGHT,
    names.IMPORTANCE_MASKED,
)
"""Metrics of the learner that the recorded tokens of some groups bound (`check_learner_numbers`)."""
OF_THE_POLICY: Final = (
    names.LOSS,
    names.GRADIENT_NORM,
    names.CHANGED_WEIGHTS,
    names.APPROXIMATE_KL,
    names.DUAL_CLIP_FRACTION,
    names.ROWS,
    names.IMITATION_LOSS,
    names.REFERENCE_KL,
)
"""Metrics of the policy's optimizer steps that are not recomputed, or only for some algorithms."""
OF_VALUES: Final = (
    names.VALUE_MEAN,
    names.SQUARED_ERROR,
    names.VALUE_ERROR_MAX,
    names.EXPLAINED_VARIANCE,
)
"""Metrics of the critic's values that are not recomputed."""
OF_THE_CRITIC: Final = (
    *map(names.critic_metric, (names.LOSS, names.GRADIENT_NORM, names.CHANGED_WEIGHTS, names.CLIP_FRACTION)),
    *map(names.critic_metric, (names.ROWS, names.UPDATE_SECONDS)),
    *OF_VALUES,
)
"""Metrics of the critic's optimizer steps that are not recomputed."""
TIMES: Final = (
    *(names.UPDATE_SECONDS, names.UPDATE_TIME, names.TIME_STEP, names.TIME_WAIT, names.TIME_ENGINE_IDLE),
    *(names.TIME_ROLLOUT, names.TIME_REWARD, names.TIME_LEARN, names.TIME_SYNC, names.TIME_EVALUATION),
    names.TIME_CHECKPOINT,
)
"""Durations."""
OF_THE_PROCESS: Final = (
    names.SPECULATED,
    names.SPECULATIONS_WASTED,
    names.FAILED_EPISODES,
    names.CACHED_SHARE,
    names.LOGPROB_GAP_PROBE,
    names.LONG_TEACHER_PROMPTS,
    names.SELECTION_ROUNDS,
    names.EPOCH,
)
"""Counts of the process and of the data, which other checks use or know the order from."""
NOT_RECOMPUTED: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "only bounded, by the recorded tokens of some groups (`run.token_groups`)": BOUNDED,
        "optimizer steps of the policy": OF_THE_POLICY,
        "values of the critic, and the loss, gradient, changed weights, clipping and rows of its steps": OF_VALUES,
        "times": TIMES,
        "counts of the process and of the data": OF_THE_PROCESS,
    }
)
"""All of them by their kind, as in `docs/algorithms.md`."""
OF_EVALUATIONS: Final = (names.TOO_LONG, names.FAILED_EPISODES)
"""Counts of an evaluation, which are compared on their own."""
COUNTED: Final = ("reward/count/", "health/", names.variant_reward.prefix)
"""Beginnings of counts since the start of the process, and of metrics that depend on earlier steps or on variants."""


def measured_metrics(config: LearningConfig, *, learned: bool) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names, and beginnings, of the metrics that a row of a step may have although they are not recomputed.

    `learned` says whether the step has an optimizer step of the policy.
    """
    found: set[str] = {*TIMES, *OF_THE_PROCESS, "step", "time"}
    tools = config.rollout.tools
    # The tools of a server have other names than its section.
    own_names = all(provides_itself(choice.target) for choice in tools.values()) and config.rollout.environment is None
    counted = [*COUNTED, *([f"tool/{name}/" for name in tools] if own_names else ["tool/"])]
    if learned:
        found |= {*BOUNDED, *OF_THE_POLICY, names.LEARNING_RATE}  # the rate has a separate check
        if not isinstance(config, FinetuneConfig) and config.algorithm.imitation is None:
            found.remove(names.IMITATION_LOSS)
        if not config.algorithm.needs_reference:
            found.remove(names.REFERENCE_KL)
        if config.algorithm.importance_correction is None:
            found -= {names.IMPORTANCE_WEIGHT, names.IMPORTANCE_MASKED}
    if isinstance(config, TrainConfig) and config.algorithm.needs_critic:
        found |= {*OF_THE_CRITIC}
    if config.rollout.agent is not None:
        counted.append("agent/")
    if config.rollout.environment is not None:
        counted.append("environment/count/")
    return frozenset(found), tuple(counted)


def has_counts(row: Collection[str], config: LearningConfig) -> bool:
    """Whether a row of a step has counts of an agent program and of an environment exactly if the run has one."""
    rollout = config.rollout
    pairs = (("agent/", rollout.agent), ("environment/count/", rollout.environment))
    return all(any(name.startswith(start) for name in row) == (each is not None) for start, each in pairs)
