"""The configuration of a run, and reading it from files and command lines."""

from torl.config.choices import ProblemChoice
from torl.config.commands import EvaluateConfig, EvaluateModelConfig, SampleConfig
from torl.config.finetuning import FinetuneConfig, FinetuneOptions
from torl.config.learning import (
    AlgorithmConfig,
    CriticConfig,
    KlConfig,
    LearnerConfig,
    PlacementConfig,
    SelectionConfig,
)
from torl.config.rollout import DataConfig, LoraConfig, ModelConfig, PromptConfig, RolloutConfig
from torl.config.run import AblationConfig, CheckpointConfig, EvaluationConfig, HealthConfig, RunConfig
from torl.config.training import LearningConfig, ModelRunConfig, TrainConfig, reference_model
from torl.runtime.cluster.protocol import ClusterConfig

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
