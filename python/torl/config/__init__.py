"""The configuration of a run, and reading it from files and command lines."""

from torl.cluster.options import ClusterConfig
from torl.config.choices import ProblemChoice
from torl.config.commands import EvaluateConfig, EvaluateModelConfig, SampleConfig
from torl.config.learning import AlgorithmConfig, CriticConfig, KlConfig, LearnerConfig, SelectionConfig
from torl.config.placement import PlacementConfig
from torl.config.rollout import DataConfig, LoraConfig, ModelConfig, PromptConfig, RolloutConfig
from torl.config.sections import (
    CheckpointConfig,
    AblationConfig,
    EvaluationConfig,
    ModelRunConfig,
    RunConfig,
    TrainConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "AblationConfig",
    "CriticConfig",
    "DataConfig",
    "EvaluateConfig",
    "EvaluationConfig",
    "KlConfig",
    "LearnerConfig",
    "LoraConfig",
    "EvaluateModelConfig",
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
]
