"""The configuration of a run, and reading it from files and command lines."""

from torl.cluster.options import ClusterConfig
from torl.config.choices import ProblemChoice
from torl.config.commands import EvaluateConfig, MeasureConfig, SampleConfig
from torl.config.learning import AlgorithmConfig, CriticConfig, KlConfig, LearnerConfig, SelectionConfig
from torl.config.placement import PlacementConfig
from torl.config.rollout import DataConfig, LoraConfig, ModelConfig, PromptConfig, RolloutConfig
from torl.config.sections import (
    CheckpointConfig,
    ControlConfig,
    EvaluationConfig,
    ModelRunConfig,
    RunConfig,
    TrainConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "ControlConfig",
    "CriticConfig",
    "DataConfig",
    "EvaluateConfig",
    "EvaluationConfig",
    "KlConfig",
    "LearnerConfig",
    "LoraConfig",
    "MeasureConfig",
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
