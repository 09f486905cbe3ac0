"""The configurations of sampling and evaluation."""

from collections.abc import Collection
from typing import Any, ClassVar

from pydantic import Field, model_validator

from torl.base.options import Choice, OutputPath, PositiveInt, Section, Seed
from torl.components.rewards import Reward
from torl.run.config.choices import ProblemChoice
from torl.run.config.rollout import DataConfig, EvaluationSets
from torl.run.config.run import EvaluationConfig
from torl.run.config.training import ModelRunConfig, TrainConfig

_OTHERS = frozenset(TrainConfig.model_fields) - frozenset(ModelRunConfig.model_fields)


class CommandConfig(ModelRunConfig):
    """The configuration of a command; it ignores the sections of a training run that it does not have."""

    @model_validator(mode="before")
    @classmethod
    def _ignore_training_sections(cls, tree: Any) -> Any:
        """Drop the sections for training; a key that belongs to no command is still an error."""
        if not isinstance(tree, dict):
            return tree
        known = {name for name, info in cls.model_fields.items() if not info.exclude}
        tree = {name: value for name, value in tree.items() if name not in _OTHERS or name in known}
        if isinstance(data := tree.get("data"), dict):
            data_class: Any = cls.model_fields["data"].annotation
            others = DataConfig.model_fields.keys() - data_class.model_fields.keys()
            tree["data"] = {name: value for name, value in data.items() if name not in others}
        return tree


class SampleOptions(Section):
    """Sampling without training."""

    problems: ProblemChoice
    """Problems to play: a file, a set or a dataset, as in `data.train`, or package.module:Name for a custom source."""
    output: OutputPath
    """File that trajectories are appended to, one JSON object per line. An existing file is resumed."""
    samples_per_problem: PositiveInt = 1
    """Number of trajectories per problem."""
    max_problems: PositiveInt | None = None
    """Number of problems used, from the beginning of the file. Unset uses all."""
    seed: Seed = 0
    """Random seed."""


class SampleConfig(CommandConfig):
    """The configuration of `torl sample`."""

    common_settings: ClassVar[Collection[str]] = (
        *CommandConfig.common_settings,
        "sample.problems",
        "sample.output",
        "sample.samples_per_problem",
    )

    outputs: ClassVar[Collection[str]] = ("sample.output",)

    sample: SampleOptions


class EvaluateModelConfig(CommandConfig):
    """The configuration of `torl evaluate` for one model; the problem sets are arguments of the command."""

    common_settings: ClassVar[Collection[str]] = (
        *CommandConfig.common_settings,
        "evaluation.max_problems",
        "evaluation.samples_per_problem",
    )
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)

    @property
    def longest_prompt(self) -> int:
        """The maximum length of a prompt that an evaluation plays, in tokens."""
        return self.evaluation.longest_prompt(self.data)

    @property
    def longest_response(self) -> int:
        """The maximum length of a response that an evaluation plays, in tokens."""
        return self.evaluation.longest_response(self.rollout)

    @property
    def evaluation_reward(self) -> Choice[Reward] | None:
        """The reward of evaluations, if it is not `reward`."""
        return self.evaluation.reward


class EvaluateConfig(EvaluateModelConfig):
    """The configuration of `torl.evaluate()`: one model, and one set of problems in `data.evaluation`."""

    data: EvaluationSets
