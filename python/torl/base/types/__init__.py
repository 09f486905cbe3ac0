"""The data types that torl's packages exchange. No torch, no vLLM, no DeepSpeed."""

from torl.base.types.grades import Grade, Group, RewardComparison, ScoredGroup, ScoredTrajectory
from torl.base.types.problems import ALTERNATIVE, Problem, Prompt
from torl.base.types.samples import BoolArray, Float32Array, Int32Array, TrainingSample, UpdateNumbers
from torl.base.types.trajectories import Block, FinishReason, StopReason, ToolCall, Trajectory, Turn, UserMessage
from torl.base.types.turns import (
    MalformedCall,
    Markup,
    ObservationText,
    Outcome,
    SampledTurn,
    SamplingParameters,
    ToolRequest,
    TurnFinish,
    TurnRequest,
)
from torl_sandbox.errors import OutcomeStatus

__all__ = [
    "ALTERNATIVE",
    "Block",
    "BoolArray",
    "FinishReason",
    "Float32Array",
    "Grade",
    "Group",
    "Int32Array",
    "MalformedCall",
    "Markup",
    "ObservationText",
    "Outcome",
    "OutcomeStatus",
    "Problem",
    "Prompt",
    "RewardComparison",
    "SampledTurn",
    "SamplingParameters",
    "ScoredGroup",
    "ScoredTrajectory",
    "StopReason",
    "ToolCall",
    "ToolRequest",
    "TrainingSample",
    "Trajectory",
    "Turn",
    "TurnFinish",
    "TurnRequest",
    "UpdateNumbers",
    "UserMessage",
]
