"""The configuration of a run: one tree of frozen, validated models, a docstring for every field.

Sizes carry their unit in the name. Paths beginning with `torl:` name files inside the package. A field that is a
`Choice` is a section with a `name`, whose other keys are the options of what was chosen (`torl.options`).
`torl.config.command_line` reads the tree from TOML and the command line.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from torl.algorithms.masks import wants_reference
from torl.config.choices import EngineChoice, RewardChoice, default_choice
from torl.config.learning import AlgorithmConfig, CriticConfig, LearnerConfig, SelectionConfig
from torl.config.placement import PlacementConfig
from torl.config.rollout import DataConfig, ModelConfig, PromptConfig, RolloutConfig
from torl.options import (
    Choice,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
)
from torl.runtime.cluster.options import ClusterConfig
from torl.tools import Tool


class RunConfig(Section):
    """What this run is called, where it writes, how long it is."""

    directory: Path
    """Directory that holds everything the run writes."""
    seed: NonNegativeInt = 0
    """Seed from which every other seed of the run is derived."""
    steps: PositiveInt
    """Number of optimizer steps."""
    note: str = ""
    """What a reader of the report should know of this run."""
    group_metrics_by: str | None = None
    """Field of the problems' metadata (source, subject, level) by whose values accuracy and code ratio are told apart,
    in training and in evaluations."""
    resume: bool = False
    """Resume from the last checkpoint in `directory`; without it a directory that holds a run is refused."""


class EvaluationConfig(Section):
    """Measuring on the evaluation sets during the run."""

    every_steps: NonNegativeInt = 4
    """Steps between evaluations. There is one before the first step and one after the last too; 0 for these alone."""
    max_problems: PositiveInt | None = None
    """Use only the first problems of each set; all when unset."""
    max_prompt_tokens: PositiveInt | None = None
    """Longest prompt; `data.max_prompt_tokens` when unset. Problems with longer ones count as not solved."""
    greedy: bool = True
    """Measure greedy accuracy (pass@1 at temperature 0)."""
    samples_per_problem: NonNegativeInt = 0
    """Trajectories for each problem sampled at `temperature`, whose mean accuracy is measured as well; 0 for none."""
    temperature: PositiveFloat = 1.0
    """Temperature of these samples."""
    top_p: PositiveFraction | None = None
    """Nucleus of these samples; as in training when unset."""
    max_tool_calls: NonNegativeInt | None = None
    """Tool calls an episode of an evaluation may make; as in training when unset."""

    def longest_prompt(self, data: PromptConfig) -> int:
        """Tokens of the longest prompt that is played."""
        return self.max_prompt_tokens or data.max_prompt_tokens

    def episodes(self, problems: int) -> int:
        """Episodes that evaluating so many problems takes."""
        return problems * (self.greedy + self.samples_per_problem)

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if not self.greedy and self.samples_per_problem == 0:
            raise ValueError("greedy = false needs samples of at least 1")
        return self


class CheckpointConfig(Section):
    """What is kept on disk."""

    every_steps: NonNegativeInt = 20
    """Steps between checkpoints. There is one after the last step too; 0 for that one alone."""
    keep_last: PositiveInt = 2
    """Checkpoints kept; older ones are removed once a newer one is complete."""
    keep_best: str | None = None
    """Metric of an evaluation, as `evaluation/heldout/reward/accuracy`: where it was highest is kept as well."""


class AblationConfig(Section):
    """Control experiments: each cuts one causal link on purpose, and a run with it must not learn to use the tool."""

    shuffle_observations: bool = False
    """Answer every tool call with the outcome of another episode's call."""
    shuffle_rewards: bool = False
    """Permute the rewards between the trajectories of a step."""


def _provides_itself(tool: Any) -> bool:
    """Whether a tool has the name of its section; a server provides tools with names of their own."""
    return getattr(tool, "provided_tools", Tool.provided_tools) is Tool.provided_tools


class ModelRunConfig(Section):
    """The sections that every command has: what playing a model on problems takes."""

    model: ModelConfig
    data: PromptConfig = Field(default_factory=PromptConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    engine: EngineChoice = default_choice("vllm")
    """The inference engine."""
    reward: RewardChoice = default_choice("rubric")
    """What trajectories are worth."""
    placement: PlacementConfig = Field(default_factory=PlacementConfig)
    """Which devices the learner and the engines have."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """Which machines the run is on."""

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that is played."""
        return self.data.max_prompt_tokens

    @model_validator(mode="after")
    def _format_reaches_tools(self) -> Self:
        form = self.rollout.format.make()
        for name, tool in self.rollout.tools.items():
            if form.tools is not None and name not in form.tools and _provides_itself(tool.target):
                names = f": it calls {', '.join(form.tools)} alone" if isinstance(form.tools, Collection) else ""
                raise ValueError(
                    f"rollout.tools.{name} cannot be called in the format {self.rollout.format.name!r}{names}; rename "
                    "the section, leave it out, or choose another rollout.format"
                )
        return self

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        choices: dict[str, Choice[Any]] = {
            "rollout.format": self.rollout.format,
            **{f"rollout.tools.{name}": tool for name, tool in self.rollout.tools.items()},
            **({} if self.rollout.environment is None else {"rollout.environment": self.rollout.environment}),
            "engine": self.engine,
            "reward": self.reward,
        }
        for place, choice in choices.items():
            try:
                choice.options.check_within(self)
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from error
        return self


class TrainConfig(ModelRunConfig):
    """A whole training run."""

    run: RunConfig
    data: DataConfig
    selection: SelectionConfig = Field(default_factory=SelectionConfig)
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    critic: CriticConfig = Field(default_factory=CriticConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    ablation: AblationConfig = Field(default_factory=AblationConfig)

    @property
    def longest_prompt(self) -> int:
        """In training or in an evaluation."""
        return max(self.data.max_prompt_tokens, self.evaluation.longest_prompt(self.data))

    @property
    def min_group_size(self) -> int:
        """Trajectories that a group must have to be learned from: one alone is compared with nothing."""
        return min(self.rollout.samples_per_prompt, max(2, self.algorithm.min_group_size))

    @model_validator(mode="after")
    def _groups_carry_a_signal(self) -> Self:
        smallest = self.algorithm.min_group_size
        if self.rollout.samples_per_prompt < smallest:
            name = self.algorithm.estimator.name
            raise ValueError(f"estimator {name!r} needs rollout.samples_per_prompt of at least {smallest}")
        if self.rollout.temperature == 0:
            raise ValueError("rollout.temperature must be above 0 for training: greedy samples are all equal")
        return self

    @model_validator(mode="after")
    def _masks_keep_reference(self) -> Self:
        if any(wants_reference(mask.target) for mask in self.selection.mask.values()):
            self.__dict__["algorithm"] = self.algorithm.model_copy(update={"keep_reference": True})
        return self

    @model_validator(mode="after")
    def _ahead_of_the_learner(self) -> Self:
        if self.rollout.max_staleness == 0:
            return self
        if self.algorithm.importance_correction is None:
            raise ValueError("rollout.max_staleness needs algorithm.importance_correction (tis, icepop or mis)")
        if getattr(self.engine.options, "sleep_while_learning", None) or self.learner.offload_while_sampling:
            raise ValueError(
                "rollout.max_staleness needs devices of its own for the engine: "
                "engine.sleep_while_learning and learner.offload_while_sampling must be off or unset"
            )
        return self
