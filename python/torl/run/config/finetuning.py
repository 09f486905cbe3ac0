"""The configuration of supervised fine-tuning."""

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from torl.base.options import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    named_by_key,
)
from torl.components.algorithms.masks import MASK, wants_reference
from torl.run.config.choices import ExampleChoice, MaskChoice
from torl.run.config.commands import CommandConfig
from torl.run.config.learning import AlgorithmConfig, CriticConfig, LearnerConfig
from torl.run.config.rollout import EvaluationSets
from torl.run.config.run import RunSettings
from torl.run.config.training import LearningConfig

_OF_TRAINING: Mapping[str, Collection[str]] = MappingProxyType(
    {"run": ("steps",), "learner": ("learning_rate", "lr_schedule", "warmup_steps")}
)
"""Settings by section that do not carry over from a training run to fine-tuning."""


class FinetuneOptions(Section):
    """Examples of supervised fine-tuning, and the tokens of them that are trained."""

    train: ExampleChoice
    """Examples: a file (.jsonl, .json, .parquet, .csv or .arrow), a dataset on the Hub, a run whose trajectories are
    imitated, or package.module:name for a custom source."""
    validation: ExampleChoice | None = None
    """Examples whose loss is measured at each evaluation."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the examples that is held out for validation. Only without `validation`."""
    epochs: PositiveFloat | None = None
    """Number of passes over the examples, which overrides `run.steps`. One if both are unset."""
    batch_size: PositiveInt = 32
    """Number of examples in an optimizer step."""
    max_tokens: PositiveInt = 4096
    """Maximum length of an example, in tokens; at most the model's context window. Longer examples are dropped."""
    observation_weight: NonNegativeFloat = 0.0
    """Weight of the mean cross-entropy of observed tokens, the results of tools. 0 masks them."""
    correct_only: bool = True
    """Drop trajectories whose answer is wrong (rejection sampling)."""
    max_per_problem: PositiveInt | None = None
    """Maximum number of trajectories of a problem. Unset keeps all. Repeated responses are always dropped."""
    drop: Annotated[dict[str, MaskChoice], named_by_key(MASK)] = Field(default={})
    """Masks by name, as in `selection.mask`: trajectories that a mask masks are dropped."""
    prompts: Literal["recorded", "template"] = "recorded"
    """Prompts of trajectories: as recorded, or the question in `data.template`, which trains the model to respond
    without the examples or instructions of the recorded prompt (prompt distillation)."""

    @model_validator(mode="after")
    def _validates_once(self) -> Self:
        if self.validation is not None and self.validation_fraction:
            raise ValueError("validation and validation_fraction cannot be combined: remove one")
        if referring := [name for name, mask in self.drop.items() if wants_reference(mask.target)]:
            raise ValueError(f"drop.{referring[0]} needs a reference model, which fine-tuning does not have")
        return self


class FinetuneRunSettings(RunSettings):
    """Directory, seed and length of the run."""

    steps: PositiveInt | None = None
    """Number of optimizer steps. `finetune.epochs` overrides it."""


class FinetuneLearnerConfig(LearnerConfig):
    """The DeepSpeed learner of fine-tuning, with another default of the learning rate."""

    learning_rate: PositiveFloat = 1e-5
    """Peak learning rate."""


def _supervised_algorithm() -> AlgorithmConfig:
    """Return the settings of the policy loss whose value is the cross-entropy of tokens with an advantage of 1."""
    return AlgorithmConfig.model_validate({"policy_loss": "reinforce", "aggregation": "token"})


class FinetuneConfig(CommandConfig, LearningConfig):
    """The configuration of `torl finetune`; it ignores the sections of reinforcement learning.

    A file without the section `finetune` is that of a training run, whose number of steps, learning rate and schedule
    are ignored as well.
    """

    common_settings: ClassVar[Collection[str]] = (
        *CommandConfig.common_settings,
        "model.lora.rank",
        "data.evaluation",
        "finetune.train",
        "finetune.validation",
        "finetune.epochs",
        "finetune.batch_size",
        "finetune.max_tokens",
        "run.directory",
        "run.seed",
        "run.steps",
        "run.resume",
        "learner.zero_stage",
        "learner.dtype",
        "learner.learning_rate",
        "learner.lr_schedule",
        "learner.warmup_steps",
        "evaluation.every_steps",
        "checkpoint.every_steps",
    )

    run: FinetuneRunSettings
    data: EvaluationSets = Field(default_factory=EvaluationSets)
    learner: FinetuneLearnerConfig = Field(default_factory=FinetuneLearnerConfig)
    finetune: FinetuneOptions
    algorithm: AlgorithmConfig = Field(default_factory=_supervised_algorithm, exclude=True)
    critic: CriticConfig = Field(default_factory=CriticConfig, exclude=True)

    @classmethod
    def settings_of_file(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings of a file, without the length and the learning rate of a training run."""
        if "finetune" in tree:
            return tree
        return {
            section: {name: each for name, each in values.items() if name not in _OF_TRAINING.get(section, ())}
            if isinstance(values, Mapping)
            else values
            for section, values in tree.items()
        }

    @property
    def plays_episodes(self) -> bool:
        """Whether an engine samples: for evaluations on problems."""
        return bool(self.data.evaluation)

    @property
    def has_validation(self) -> bool:
        """Whether evaluations measure the loss on examples."""
        return self.finetune.validation is not None or self.finetune.validation_fraction > 0

    @property
    def longest_sample(self) -> int:
        """The maximum length of an example, in tokens."""
        return self.finetune.max_tokens

    @property
    def policy_temperature(self) -> float:
        """The temperature by which the learner divides logits: examples are imitated as they are."""
        return 1.0

    @property
    def total_steps(self) -> int:
        """The number of optimizer steps, once it is resolved (`with_steps`)."""
        assert self.run.steps is not None, "the steps of the run are not resolved"
        return self.run.steps

    def with_steps(self, examples: int) -> Self:
        """Return the configuration with its number of steps for this many examples."""
        epochs = self.finetune.epochs or (1.0 if self.run.steps is None else None)
        if epochs is None:
            return self
        steps = max(1, math.ceil(epochs * examples / self.finetune.batch_size))
        return self.model_copy(update={"run": self.run.model_copy(update={"steps": steps})})
