"""torl: reinforcement learning of language models that think with tools.

    import torl

    with torl.Policy("torl:demo/base_model", extends="demo") as policy:
        groups = policy.sample(["Find 12345 squared."], samples_per_problem=4)
    print(groups[0].members[0].trajectory.text)

`train`, `finetune`, `sample` and `evaluate` are the commands as functions; `Policy` keeps an engine between
calls, and `Run` reads the records of a run. `SandboxPool` runs untrusted Python, and `Grader` compares answers. The
base classes `Tool`, `Format`, `Reward`, `Environment`, `Agent` and `Engine` are for custom components. Names are
imported at their first use; none of them imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torl._core import Scanner as Scanner
    from torl._core import StopCondition as StopCondition
    from torl._core import repetition as repetition
    from torl.api import History as History
    from torl.api import Policy as Policy
    from torl.api import Run as Run
    from torl.api import SampledGroups as SampledGroups
    from torl.api import evaluate as evaluate
    from torl.api import finetune as finetune
    from torl.api import sample as sample
    from torl.api import train as train
    from torl.base.component import Component as Component
    from torl.base.component import RunContext as RunContext
    from torl.base.errors import ConfigError as ConfigError
    from torl.base.errors import RewardError as RewardError
    from torl.base.errors import ToolUnavailableError as ToolUnavailableError
    from torl.base.errors import TorlError as TorlError
    from torl.base.options import NonNegativeFloat as NonNegativeFloat
    from torl.base.options import NonNegativeInt as NonNegativeInt
    from torl.base.options import PositiveFloat as PositiveFloat
    from torl.base.options import PositiveFraction as PositiveFraction
    from torl.base.options import PositiveInt as PositiveInt
    from torl.base.options import Section as Section
    from torl.base.options import load_object as load_object
    from torl.base.runtime.processes.supervision import call_function as call_function
    from torl.base.types import Block as Block
    from torl.base.types import FinishReason as FinishReason
    from torl.base.types import Grade as Grade
    from torl.base.types import Group as Group
    from torl.base.types import MalformedCall as MalformedCall
    from torl.base.types import Markup as Markup
    from torl.base.types import ObservationText as ObservationText
    from torl.base.types import Outcome as Outcome
    from torl.base.types import OutcomeStatus as OutcomeStatus
    from torl.base.types import Problem as Problem
    from torl.base.types import Prompt as Prompt
    from torl.base.types import SampledTurn as SampledTurn
    from torl.base.types import SamplingParameters as SamplingParameters
    from torl.base.types import ScoredGroup as ScoredGroup
    from torl.base.types import ScoredTrajectory as ScoredTrajectory
    from torl.base.types import StopReason as StopReason
    from torl.base.types import ToolCall as ToolCall
    from torl.base.types import ToolRequest as ToolRequest
    from torl.base.types import TrainingSample as TrainingSample
    from torl.base.types import Trajectory as Trajectory
    from torl.base.types import Turn as Turn
    from torl.base.types import TurnRequest as TurnRequest
    from torl.base.version import __version__ as __version__
    from torl.commands.command import Command as Command
    from torl.commands.command import Files as Files
    from torl.components.agents import Agent as Agent
    from torl.components.algorithms.advantages import Estimator as Estimator
    from torl.components.algorithms.advantages import EstimatorInputs as EstimatorInputs
    from torl.components.algorithms.advantages import TokenAdvantages as TokenAdvantages
    from torl.components.algorithms.aggregation import Aggregation as Aggregation
    from torl.components.algorithms.imitation import Imitation as Imitation
    from torl.components.algorithms.losses import BatchTokens as BatchTokens
    from torl.components.algorithms.losses import CorrectionInputs as CorrectionInputs
    from torl.components.algorithms.losses import ImportanceCorrection as ImportanceCorrection
    from torl.components.algorithms.losses import LossInputs as LossInputs
    from torl.components.algorithms.losses import PolicyLoss as PolicyLoss
    from torl.components.algorithms.losses import PolicyLossValues as PolicyLossValues
    from torl.components.algorithms.requirements import requires as requires
    from torl.components.data import ProblemSource as ProblemSource
    from torl.components.engine import Engine as Engine
    from torl.components.engine import EngineMemory as EngineMemory
    from torl.components.engine import EngineOptions as EngineOptions
    from torl.components.engine import EngineSetup as EngineSetup
    from torl.components.engine import Installation as Installation
    from torl.components.engine import LocalEngineOptions as LocalEngineOptions
    from torl.components.environments import Environment as Environment
    from torl.components.environments import EnvironmentSession as EnvironmentSession
    from torl.components.environments import Message as Message
    from torl.components.environments import Reply as Reply
    from torl.components.formats import ChatFormat as ChatFormat
    from torl.components.formats import FencedFormat as FencedFormat
    from torl.components.formats import Format as Format
    from torl.components.formats import TaggedFormat as TaggedFormat
    from torl.components.formats import TaggedOptions as TaggedOptions
    from torl.components.formats.blocks import FenceStyle as FenceStyle
    from torl.components.formats.blocks import run_block as run_block
    from torl.components.formats.observation import ErrorStyle as ErrorStyle
    from torl.components.formats.observation import longest_prefix as longest_prefix
    from torl.components.formats.observation import render_outcome as render_outcome
    from torl.components.formats.observation import truncate_middle as truncate_middle
    from torl.components.grading import Grader as Grader
    from torl.components.hub.shape import ModelShape as ModelShape
    from torl.components.rewards import JudgeClient as JudgeClient
    from torl.components.rewards import Reward as Reward
    from torl.components.text.answers import find_answer as find_answer
    from torl.components.text.answers import find_tagged_answer as find_tagged_answer
    from torl.components.text.templates import PromptTemplate as PromptTemplate
    from torl.components.text.templates import PromptVariant as PromptVariant
    from torl.components.text.templates import chatml as chatml
    from torl.components.text.templates import load_template as load_template
    from torl.components.tools import StatefulTool as StatefulTool
    from torl.components.tools import Tool as Tool
    from torl.components.tools import ToolSession as ToolSession
    from torl.components.trackers import Tracker as Tracker
    from torl.training.monitor import Monitor as Monitor
    from torl.training.monitor import Verdict as Verdict
    from torl_sandbox import Execution as Execution
    from torl_sandbox import SandboxPool as SandboxPool

# The modules of the names above, from which `__all__` and `__getattr__` derive; test_public_api.py compares.
_MODULES = {
    "torl._core": "Scanner StopCondition repetition",
    "torl.components.agents": "Agent",
    "torl.components.algorithms.advantages": "Estimator EstimatorInputs TokenAdvantages",
    "torl.components.algorithms.aggregation": "Aggregation",
    "torl.components.algorithms.imitation": "Imitation",
    "torl.components.algorithms.losses": "BatchTokens CorrectionInputs ImportanceCorrection LossInputs PolicyLoss "
    "PolicyLossValues",
    "torl.components.algorithms.requirements": "requires",
    "torl.api": "History Policy Run SampledGroups evaluate finetune sample train",
    "torl.base.component": "Component RunContext",
    "torl.components.data": "ProblemSource",
    "torl.components.engine": "Engine EngineMemory EngineOptions EngineSetup Installation LocalEngineOptions",
    "torl.components.hub.shape": "ModelShape",
    "torl.components.environments": "Environment EnvironmentSession Message Reply",
    "torl.base.errors": "ConfigError RewardError ToolUnavailableError TorlError",
    "torl.components.formats": "ChatFormat FencedFormat Format TaggedFormat TaggedOptions",
    "torl.components.formats.blocks": "FenceStyle run_block",
    "torl.components.formats.observation": "ErrorStyle longest_prefix render_outcome truncate_middle",
    "torl.components.grading": "Grader",
    "torl.base.options": "NonNegativeFloat NonNegativeInt PositiveFloat PositiveFraction PositiveInt "
    "Section load_object",
    "torl.components.rewards": "JudgeClient Reward",
    "torl.base.runtime.processes.supervision": "call_function",
    "torl_sandbox": "Execution SandboxPool",
    "torl.components.text.answers": "find_answer find_tagged_answer",
    "torl.components.text.templates": "PromptTemplate PromptVariant chatml load_template",
    "torl.components.tools": "StatefulTool Tool ToolSession",
    "torl.components.trackers": "Tracker",
    "torl.commands.command": "Command Files",
    "torl.training.monitor": "Monitor Verdict",
    "torl.base.types": "Block FinishReason Grade Group MalformedCall Markup ObservationText Outcome OutcomeStatus "
    "Problem Prompt SampledTurn SamplingParameters ScoredGroup ScoredTrajectory StopReason ToolCall ToolRequest "
    "TrainingSample Trajectory Turn TurnRequest",
    "torl.base.version": "__version__",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "verify":
        raise AttributeError("torl.verify is torl_lab.verify now")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'torl' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
