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
    from torl._core import StopCondition
    from torl.agents import Agent
    from torl.algorithms.advantages import Estimator, EstimatorInputs, TokenAdvantages
    from torl.algorithms.losses import LossInputs, PolicyLoss, PolicyLossValues
    from torl.api import evaluate, sample, train, verify
    from torl.component import Component, RunContext
    from torl.data import ProblemSource
    from torl.engine import Engine, EngineOptions, EngineSetup
    from torl.errors import TorlError
    from torl.formats import Format
    from torl.options import Section
    from torl.rewards import Grader, Reward
    from torl.sandbox import Execution, SandboxPool
    from torl.text.templates import PromptTemplate
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
        Trajectory,
        Turn,
        TurnRequest,
    )
    from torl.version import __version__

_PLACES = {
    "torl._core": ("StopCondition",),
    "torl.agents": ("Agent",),
    "torl.algorithms.advantages": ("Estimator", "EstimatorInputs", "TokenAdvantages"),
    "torl.algorithms.losses": ("LossInputs", "PolicyLoss", "PolicyLossValues"),
    "torl.api": ("evaluate", "sample", "train", "verify"),
    "torl.component": ("Component", "RunContext"),
    "torl.data": ("ProblemSource",),
    "torl.engine": ("Engine", "EngineOptions", "EngineSetup"),
    "torl.errors": ("TorlError",),
    "torl.formats": ("Format",),
    "torl.options": ("Section",),
    "torl.rewards": ("Grader", "Reward"),
    "torl.sandbox": ("Execution", "SandboxPool"),
    "torl.text.templates": ("PromptTemplate",),
    "torl.tools": ("StatefulTool", "Tool", "ToolSession"),
    "torl.types": (
        "ObservationText",
        "Grade",
        "Group",
        "MalformedCall",
        "Markup",
        "Outcome",
        "OutcomeStatus",
        "Problem",
        "Prompt",
        "SampledTurn",
        "SamplingParameters",
        "ScoredTrajectory",
        "ScoredGroup",
        "ToolCall",
        "ToolRequest",
        "Trajectory",
        "Turn",
        "TurnRequest",
        "StopReason",
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
    "Estimator",
    "EstimatorInputs",
    "Execution",
    "Format",
    "Grade",
    "Grader",
    "Group",
    "LossInputs",
    "MalformedCall",
    "Markup",
    "ObservationText",
    "Outcome",
    "OutcomeStatus",
    "PolicyLoss",
    "PolicyLossValues",
    "Problem",
    "ProblemSource",
    "Prompt",
    "PromptTemplate",
    "Reward",
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
    "TokenAdvantages",
    "Tool",
    "ToolCall",
    "ToolRequest",
    "ToolSession",
    "TorlError",
    "Trajectory",
    "Turn",
    "TurnRequest",
    "__version__",
    "evaluate",
    "sample",
    "train",
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
