"""torl: reinforcement learning of language models that think with tools.

    import torl

    with torl.Policy("torl:demo/base_model", extends="demo") as policy:
        groups = policy.sample(["Find 12345 squared."], samples_per_problem=4)
    print(groups[0].members[0].trajectory.text)

`train`, `finetune`, `sample`, `evaluate` and `verify` are the commands as functions; `Policy` keeps an engine between
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
    from torl.agents import Agent as Agent
    from torl.algorithms.advantages import Estimator as Estimator
    from torl.algorithms.advantages import EstimatorInputs as EstimatorInputs
    from torl.algorithms.advantages import TokenAdvantages as TokenAdvantages
    from torl.algorithms.aggregation import Aggregation as Aggregation
    from torl.algorithms.imitation import Imitation as Imitation
    from torl.algorithms.losses import BatchTokens as BatchTokens
    from torl.algorithms.losses import CorrectionInputs as CorrectionInputs
    from torl.algorithms.losses import ImportanceCorrection as ImportanceCorrection
    from torl.algorithms.losses import LossInputs as LossInputs
    from torl.algorithms.losses import PolicyLoss as PolicyLoss
    from torl.algorithms.losses import PolicyLossValues as PolicyLossValues
    from torl.algorithms.requirements import requires as requires
    from torl.api import History as History
    from torl.api import Policy as Policy
    from torl.api import Run as Run
    from torl.api import SampledGroups as SampledGroups
    from torl.api import evaluate as evaluate
    from torl.api import finetune as finetune
    from torl.api import sample as sample
    from torl.api import train as train
    from torl.api import verify as verify
    from torl.component import Component as Component
    from torl.component import RunContext as RunContext
    from torl.data import ProblemSource as ProblemSource
    from torl.engine import Engine as Engine
    from torl.engine import EngineOptions as EngineOptions
    from torl.engine import EngineSetup as EngineSetup
    from torl.environments import Environment as Environment
    from torl.environments import EnvironmentSession as EnvironmentSession
    from torl.environments import Message as Message
    from torl.environments import Reply as Reply
    from torl.errors import ConfigError as ConfigError
    from torl.errors import RewardError as RewardError
    from torl.errors import ToolUnavailableError as ToolUnavailableError
    from torl.errors import TorlError as TorlError
    from torl.formats import ChatFormat as ChatFormat
    from torl.formats import FencedFormat as FencedFormat
    from torl.formats import Format as Format
    from torl.formats import TaggedFormat as TaggedFormat
    from torl.formats import TaggedOptions as TaggedOptions
    from torl.formats.blocks import FenceStyle as FenceStyle
    from torl.formats.blocks import run_block as run_block
    from torl.formats.observation import ErrorStyle as ErrorStyle
    from torl.formats.observation import longest_prefix as longest_prefix
    from torl.formats.observation import render_outcome as render_outcome
    from torl.formats.observation import truncate_middle as truncate_middle
    from torl.options import NonNegativeFloat as NonNegativeFloat
    from torl.options import NonNegativeInt as NonNegativeInt
    from torl.options import PositiveFloat as PositiveFloat
    from torl.options import PositiveFraction as PositiveFraction
    from torl.options import PositiveInt as PositiveInt
    from torl.options import Section as Section
    from torl.options import load_object as load_object
    from torl.rewards import Grader as Grader
    from torl.rewards import JudgeClient as JudgeClient
    from torl.rewards import Reward as Reward
    from torl.runtime.processes.supervision import call_function as call_function
    from torl.text.answers import find_answer as find_answer
    from torl.text.answers import find_tagged_answer as find_tagged_answer
    from torl.text.templates import PromptTemplate as PromptTemplate
    from torl.text.templates import PromptVariant as PromptVariant
    from torl.text.templates import chatml as chatml
    from torl.text.templates import load_template as load_template
    from torl.tools import StatefulTool as StatefulTool
    from torl.tools import Tool as Tool
    from torl.tools import ToolSession as ToolSession
    from torl.trackers import Tracker as Tracker
    from torl.types import Block as Block
    from torl.types import FinishReason as FinishReason
    from torl.types import Grade as Grade
    from torl.types import Group as Group
    from torl.types import MalformedCall as MalformedCall
    from torl.types import Markup as Markup
    from torl.types import ObservationText as ObservationText
    from torl.types import Outcome as Outcome
    from torl.types import OutcomeStatus as OutcomeStatus
    from torl.types import Problem as Problem
    from torl.types import Prompt as Prompt
    from torl.types import SampledTurn as SampledTurn
    from torl.types import SamplingParameters as SamplingParameters
    from torl.types import ScoredGroup as ScoredGroup
    from torl.types import ScoredTrajectory as ScoredTrajectory
    from torl.types import StopReason as StopReason
    from torl.types import ToolCall as ToolCall
    from torl.types import ToolRequest as ToolRequest
    from torl.types import TrainingSample as TrainingSample
    from torl.types import Trajectory as Trajectory
    from torl.types import Turn as Turn
    from torl.types import TurnRequest as TurnRequest
    from torl.version import __version__ as __version__
    from torl_sandbox import Execution as Execution
    from torl_sandbox import SandboxPool as SandboxPool

# The modules of the names above, from which `__all__` and `__getattr__` derive; tests/unit/test_public_api.py compares.
_MODULES = {
    "torl._core": "Scanner StopCondition repetition",
    "torl.agents": "Agent",
    "torl.algorithms.advantages": "Estimator EstimatorInputs TokenAdvantages",
    "torl.algorithms.aggregation": "Aggregation",
    "torl.algorithms.imitation": "Imitation",
    "torl.algorithms.losses": "BatchTokens CorrectionInputs ImportanceCorrection LossInputs PolicyLoss "
    "PolicyLossValues",
    "torl.algorithms.requirements": "requires",
    "torl.api": "History Policy Run SampledGroups evaluate finetune sample train verify",
    "torl.component": "Component RunContext",
    "torl.data": "ProblemSource",
    "torl.engine": "Engine EngineOptions EngineSetup",
    "torl.environments": "Environment EnvironmentSession Message Reply",
    "torl.errors": "ConfigError RewardError ToolUnavailableError TorlError",
    "torl.formats": "ChatFormat FencedFormat Format TaggedFormat TaggedOptions",
    "torl.formats.blocks": "FenceStyle run_block",
    "torl.formats.observation": "ErrorStyle longest_prefix render_outcome truncate_middle",
    "torl.options": "NonNegativeFloat NonNegativeInt PositiveFloat PositiveFraction PositiveInt Section load_object",
    "torl.rewards": "Grader JudgeClient Reward",
    "torl.runtime.processes.supervision": "call_function",
    "torl_sandbox": "Execution SandboxPool",
    "torl.text.answers": "find_answer find_tagged_answer",
    "torl.text.templates": "PromptTemplate PromptVariant chatml load_template",
    "torl.tools": "StatefulTool Tool ToolSession",
    "torl.trackers": "Tracker",
    "torl.types": "Block FinishReason Grade Group MalformedCall Markup ObservationText Outcome OutcomeStatus Problem "
    "Prompt SampledTurn SamplingParameters ScoredGroup ScoredTrajectory StopReason ToolCall ToolRequest TrainingSample "
    "Trajectory Turn TurnRequest",
    "torl.version": "__version__",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'torl' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
