"""The metrics that the audit does not recompute, and the names that a row may have."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from torl.run.config import FinetuneConfig, LearningConfig, TrainConfig
from torl.run.config.training import provides_itself
from torl.run.records import metric_names as names

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
    """Return the metrics that a row of a step may have although they are not recomputed: names, and beginnings.

    Args:
        config: Configuration of the step.
        learned: Whether the step has an optimizer step of the policy.
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
