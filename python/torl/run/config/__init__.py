"""The configuration of a run, and reading it from files and command lines."""

from torl.base.runtime.cluster.protocol import ClusterConfig
from torl.run.config.choices import ProblemChoice
from torl.run.config.commands import EvaluateConfig, EvaluateModelConfig, SampleConfig
from torl.run.config.finetuning import FinetuneConfig, FinetuneOptions
from torl.run.config.learning import (
    AlgorithmConfig,
    CriticConfig,
    KlConfig,
    LearnerConfig,
    PlacementConfig,
    SelectionConfig,
)
from torl.run.config.rollout import DataConfig, LoraConfig, ModelConfig, PromptConfig, RolloutConfig
from torl.run.config.run import AblationConfig, CheckpointConfig, EvaluationConfig, HealthConfig, RunConfig
from torl.run.config.training import LearningConfig, ModelRunConfig, TrainConfig, reference_model

__all__ = [
    "AblationConfig",
    "AlgorithmConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "CriticConfig",
    "DataConfig",
    "EvaluateConfig",
    "EvaluateModelConfig",
    "EvaluationConfig",
    "FinetuneConfig",
    "FinetuneOptions",
    "HealthConfig",
    "KlConfig",
    "LearnerConfig",
    "LearningConfig",
    "LoraConfig",
    "ModelConfig",
    "ModelRunConfig",
    "PlacementConfig",
    "ProblemChoice",
    "PromptConfig",
    "RolloutConfig",
    "RunConfig",
    "SampleConfig",
    "SelectionConfig",
    "TrainConfig",
    "reference_model",
]
