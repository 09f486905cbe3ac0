"""The configurations of the commands that learn nothing."""

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from torl.config.choices import ProblemChoice
from torl.config.rollout import DataConfig, PromptConfig
from torl.config.sections import EvaluationConfig, ModelRunConfig, TrainConfig
from torl.options import (
    NonNegativeInt,
    PositiveInt,
    Section,
)

_OTHERS = frozenset(TrainConfig.model_fields) - frozenset(ModelRunConfig.model_fields)
_PROBLEM_SETS = frozenset(DataConfig.model_fields) - frozenset(PromptConfig.model_fields)


class CommandConfig(ModelRunConfig):
    """The configuration of a command that learns nothing; it skips the sections that are for training only."""

    @model_validator(mode="before")
    @classmethod
    def _pass_over(cls, tree: Any) -> Any:
        """A key that belongs to no command is still an error."""
        if not isinstance(tree, dict):
            return tree
        tree = {name: value for name, value in tree.items() if name not in _OTHERS or name in cls.model_fields}
        if isinstance(data := tree.get("data"), dict):
            tree["data"] = {name: value for name, value in data.items() if name not in _PROBLEM_SETS}
        return tree


class SampleOptions(Section):
    """What is sampled, where nothing is learned."""

    problems: ProblemChoice
    """Problems to play: a file (.jsonl, .json or .parquet)."""
    output: Path
    """File of trajectories, one JSON object on each line. One that exists is resumed."""
    samples_per_problem: PositiveInt = 1
    """Trajectories for each problem."""
    max_problems: PositiveInt | None = None
    """Number of problems to use, the first ones of the file; all of them when unset."""
    seed: NonNegativeInt = 0
    """Seed of everything random."""


class SampleConfig(CommandConfig):
    """What `torl.sample` takes."""

    sample: SampleOptions


class EvaluateOptions(Section):
    """What is evaluated, where nothing is learned."""

    problems: ProblemChoice
    """Problems to measure on: a file (.jsonl, .json or .parquet)."""
    use_tools: bool = True
    """Whether the model's tool calls are answered; false is `evaluation.max_tool_calls` 0."""
    output: Path | None = None
    """Directory for the trajectories; none are written when unset."""


class EvaluateModelConfig(CommandConfig):
    """What `python -m torl.evaluate` takes for one model; the problem sets are its own arguments."""

    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)

    @property
    def longest_prompt(self) -> int:
        """Of the evaluation: nothing else is played."""
        return self.evaluation.longest_prompt(self.data)


class EvaluateConfig(EvaluateModelConfig):
    """What `torl.evaluate` takes: one model, one set of problems."""

    evaluate: EvaluateOptions

    @property
    def evaluation_settings(self) -> EvaluationConfig:
        """How it is played: as `evaluation` says, without a call where the tool is off."""
        return self.evaluation if self.evaluate.use_tools else self.evaluation.model_copy(update={"max_tool_calls": 0})
