"""The sections on a run itself: directory, length, evaluations, checkpoints, checks while it runs, and ablations."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from torl.base.options import (
    NonNegativeInt,
    OutputPath,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
    Seed,
    default_choice,
    named_by_key,
)
from torl.run.config.choices import TRACKER, RewardChoice, TrackerChoice
from torl.run.config.rollout import PromptConfig, RolloutConfig


class RunSettings(Section):
    """Directory and seed of a run."""

    directory: OutputPath
    """Directory that the run writes all its files to."""
    seed: Seed = 0
    """Random seed; all other seeds of the run are derived from it."""
    note: str = ""
    """Note on the run, shown in its report."""
    group_metrics_by: str | None = None
    """Metadata field, such as source, subject or level, to break down accuracy and code ratio by."""
    trackers: Annotated[dict[str, TrackerChoice], named_by_key(TRACKER)] = default_choice({"tensorboard": {}})
    """Destinations of the metrics in addition to `metrics.jsonl`. A table replaces the default, "tensorboard"."""
    resume: bool = False
    """Resume from the latest checkpoint in `directory`. When false, a directory that already contains a run is an
    error."""


class RunConfig(RunSettings):
    """Directory, seed and length of the run."""

    steps: PositiveInt
    """Number of training steps. Each makes `algorithm.epochs` x `algorithm.mini_batches` optimizer steps."""
    token_groups: NonNegativeInt | Literal["all"] = 2
    """Number of groups of each step whose tokens the learner records, drawn by `seed` from those that it learns from:
    log-probability, entropy, importance weight, clipping and advantage in the last optimizer step with the token. "all"
    records every group."""


class RolloutChanges(TypedDict, total=False):
    """Settings of `rollout` that may have another value in evaluations."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    temperature: PositiveFloat
    top_p: PositiveFraction
    max_tool_calls: NonNegativeInt
    max_response_tokens: PositiveInt
    stop: tuple[Annotated[str, Field(min_length=1)], ...]


class EvaluationConfig(Section):
    """Evaluations during the run."""

    every_steps: NonNegativeInt = 4
    """Evaluation interval, in steps. 0 evaluates only after the last step, and before the first."""
    before_training: bool = True
    """Evaluate before the first step."""
    max_problems: PositiveInt | None = None
    """Number of problems used of each set, from its beginning. Unset uses all."""
    max_prompt_tokens: PositiveInt | None = None
    """Maximum prompt length, in tokens; problems with longer prompts count as not solved. Unset uses
    `data.max_prompt_tokens`."""
    greedy: bool = True
    """Measure greedy accuracy (pass@1 at temperature 0)."""
    samples_per_problem: NonNegativeInt = 0
    """Number of trajectories per problem that are sampled, to measure their mean accuracy. 0 samples none."""
    rollout: RolloutChanges = Field(default=RolloutChanges())
    """Settings of `rollout` that differ in evaluations: max_tool_calls, max_response_tokens, stop, top_p, temperature.
    The temperature of samples is 1 unless it is given here."""
    reward: RewardChoice | None = None
    """Reward that grades evaluations. Unset uses `reward`, the reward of training."""

    def longest_prompt(self, data: PromptConfig) -> int:
        """Return the maximum prompt length, in tokens."""
        return self.max_prompt_tokens or data.max_prompt_tokens

    def longest_response(self, rollout: RolloutConfig) -> int:
        """Return the maximum response length, in tokens."""
        return self.apply_to(rollout).max_response_tokens

    def apply_to(self, rollout: RolloutConfig) -> RolloutConfig:
        """Return the settings of the episodes of an evaluation, of which greedy ones have no temperature."""
        return rollout.model_copy(update={"temperature": 1.0, **self.rollout})

    def episodes(self, problems: int) -> int:
        """Return the number of episodes that an evaluation on this many problems plays."""
        return problems * (self.greedy + self.samples_per_problem)

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if not self.greedy and self.samples_per_problem == 0:
            raise ValueError("greedy = false requires samples_per_problem of at least 1")
        return self


class CheckpointConfig(Section):
    """Checkpoints of the run."""

    every_steps: NonNegativeInt = 20
    """Checkpoint interval, in steps. A run always writes one after the last step; 0 disables all others."""
    keep_last: PositiveInt = 2
    """Number of most recent checkpoints that are kept. Older ones are removed once a newer one is complete."""
    keep_best: str | None = None
    """Evaluation metric, such as `evaluation/heldout/reward/accuracy`, whose best checkpoint is kept in addition to the
    most recent ones: the one with the highest value, or the lowest `validation/loss`. `every_steps` must be a multiple
    of `evaluation.every_steps`, so that each checkpoint is evaluated."""


class HealthConfig(Section):
    """The checks of `torl doctor` on the run's own records while it trains."""

    mode: Literal["off", "warn", "stop"] = "warn"
    """Effect of a finding: "warn" prints it, and "stop" ends the run after a checkpoint, from which it can be
    resumed. "off" runs no check."""
    ignore: tuple[str, ...] = ()
    """Names of checks that are not run, also by `torl doctor`."""


class AblationConfig(Section):
    """An ablation that breaks one causal link on purpose. A run with it should not learn to use the tool."""

    shuffle: Literal["none", "observations", "rewards"] = "none"
    """Reply to each tool call with the outcome of another episode's call ("observations"), or permute the "rewards"
    between the trajectories of a step."""
