"""torl: reinforcement learning of language models that think with tools.

    import torl

    groups = torl.sample("torl:demo/base_model", ["Find 12345 squared."], samples=4)
    print(groups[0].members[0].trajectory.text)

What is named here is loaded when it is asked for, and none of it loads torch. Beside the four commands as calls:
`SandboxPool` runs untrusted Python, `Grader` compares answers, and the protocols say what a tool, a format, a reward,
an engine or an algorithm of one's own has to be.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torl._core import StopCondition, repetition
    from torl.agents import Agent
    from torl.algorithms.advantages import Estimator, EstimatorInputs, TokenAdvantages
    from torl.algorithms.losses import LossInputs, PolicyLoss, PolicyLossValues
    from torl.algorithms.masks import needs_reference
    from torl.api import evaluate, sample, train, verify
    from torl.component import Component, RunContext
    from torl.data import ProblemSource
    from torl.engine import Engine, EngineOptions, EngineSetup
    from torl.errors import RewardError, TorlError
    from torl.formats import FencedFormat, Format, TaggedFormat, TaggedOptions
    from torl.formats.fenced import FenceStyle, run_block
    from torl.formats.observation import ErrorStyle, longest_prefix, render_outcome, truncate_middle
    from torl.options import NonNegativeInt, PositiveFloat, PositiveFraction, PositiveInt, Section, load_object
    from torl.rewards import Grader, JudgeClient, Reward
    from torl.runtime.processes.threads import run_in_thread
    from torl.sandbox import Execution, SandboxPool
    from torl.text.answers import find_answer, find_tagged_answer
    from torl.text.templates import PromptTemplate, PromptVariant, chatml, load_template
    from torl.tools import StatefulTool, Tool, ToolSession
    from torl.types import (
        Grade,
        Group,
        MalformedCall,
        Markup,
        ObservationText,
        Outcome,
        OutcomeStatus,
        Problem,
        Prompt,
        SampledTurn,
        SamplingParameters,
        ScoredGroup,
        ScoredTrajectory,
        StopReason,
        ToolCall,
        ToolRequest,
        TrainingSample,
        Trajectory,
        Turn,
    )
    from torl.version import __version__

_PLACES = {
    "torl._core": (
        "StopCondition",
        "repetition",
    ),
    "torl.agents": ("Agent",),
    "torl.algorithms.advantages": (
        "Estimator",
        "EstimatorInputs",
        "TokenAdvantages",
    ),
    "torl.algorithms.losses": (
        "LossInputs",
        "PolicyLoss",
        "PolicyLossValues",
    ),
    "torl.algorithms.masks": ("needs_reference",),
    "torl.api": (
        "evaluate",
        "sample",
        "train",
        "verify",
    ),
    "torl.component": (
        "Component",
        "RunContext",
    ),
    "torl.data": ("ProblemSource",),
    "torl.engine": (
        "Engine",
        "EngineOptions",
        "EngineSetup",
    ),
    "torl.errors": (
        "RewardError",
        "TorlError",
    ),
    "torl.formats": (
        "FencedFormat",
        "Format",
        "TaggedFormat",
        "TaggedOptions",
    ),
    "torl.formats.fenced": (
        "FenceStyle",
        "run_block",
    ),
    "torl.formats.observation": (
        "ErrorStyle",
        "longest_prefix",
        "render_outcome",
        "truncate_middle",
    ),
    "torl.options": (
        "NonNegativeInt",
        "PositiveFloat",
        "PositiveFraction",
        "PositiveInt",
        "Section",
        "load_object",
    ),
    "torl.rewards": (
        "Grader",
        "JudgeClient",
        "Reward",
    ),
    "torl.runtime.processes.threads": ("run_in_thread",),
    "torl.sandbox": (
        "Execution",
        "SandboxPool",
    ),
    "torl.text.answers": (
        "find_answer",
        "find_tagged_answer",
    ),
    "torl.text.templates": (
        "PromptTemplate",
        "PromptVariant",
        "chatml",
        "load_template",
    ),
    "torl.tools": (
        "StatefulTool",
        "Tool",
        "ToolSession",
    ),
    "torl.types": (
        "Grade",
        "Group",
        "MalformedCall",
        "Markup",
        "ObservationText",
        "Outcome",
        "OutcomeStatus",
        "Problem",
        "Prompt",
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
    ),
    "torl.version": ("__version__",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Agent",
    "Component",
    "Engine",
    "EngineOptions",
    "EngineSetup",
    "ErrorStyle",
    "Estimator",
    "EstimatorInputs",
    "Execution",
    "FenceStyle",
    "FencedFormat",
    "Format",
    "Grade",
    "Grader",
    "Group",
    "JudgeClient",
    "LossInputs",
    "MalformedCall",
    "Markup",
    "NonNegativeInt",
    "ObservationText",
    "Outcome",
    "OutcomeStatus",
    "PolicyLoss",
    "PolicyLossValues",
    "PositiveFloat",
    "PositiveFraction",
    "PositiveInt",
    "Problem",
    "ProblemSource",
    "Prompt",
    "PromptTemplate",
    "PromptVariant",
    "Reward",
    "RewardError",
    "RunContext",
    "SampledTurn",
    "SamplingParameters",
    "SandboxPool",
    "ScoredGroup",
    "ScoredTrajectory",
    "Section",
    "StatefulTool",
    "StopCondition",
    "StopReason",
    "TaggedFormat",
    "TaggedOptions",
    "TokenAdvantages",
    "Tool",
    "ToolCall",
    "ToolRequest",
    "ToolSession",
    "TorlError",
    "TrainingSample",
    "Trajectory",
    "Turn",
    "__version__",
    "chatml",
    "evaluate",
    "find_answer",
    "find_tagged_answer",
    "load_object",
    "load_template",
    "longest_prefix",
    "needs_reference",
    "render_outcome",
    "repetition",
    "run_block",
    "run_in_thread",
    "sample",
    "train",
    "truncate_middle",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'torl' has no attribute {name!r}")
    value = getattr(import_module(_PLACE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACE_OF])
