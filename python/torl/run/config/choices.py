"""The choices of a configuration, each with its registry."""

from collections.abc import Iterable
from typing import Annotated, Any

from torl.base.options import (
    Choice,
    ChosenFrom,
)
from torl.base.removed_settings import RENAMED_REWARDS
from torl.base.types import Problem
from torl.components.agents import AGENT_SHORTHANDS, AGENTS, Agent, limits_of
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import Estimator, TokenAdvantages, check_advantages
from torl.components.algorithms.aggregation import AGGREGATIONS, Aggregation, check_weights
from torl.components.algorithms.imitation import IMITATIONS, Imitation, check_imitation
from torl.components.algorithms.losses import (
    CORRECTIONS,
    KL_ESTIMATORS,
    POLICY_LOSSES,
    ImportanceCorrection,
    KlEstimator,
    PolicyLoss,
    PolicyLossValues,
)
from torl.components.algorithms.losses.correction import check_correction
from torl.components.algorithms.losses.kl import check_kl
from torl.components.algorithms.losses.policy import check_policy_loss
from torl.components.algorithms.masks import MASK, Mask
from torl.components.algorithms.selection import GROUP_FILTER, MEMBER_FILTER, GroupFilter, MemberFilter
from torl.components.algorithms.teacher_prompts import TeacherPrompt, check_teacher_prompt
from torl.components.data import PROBLEM_SOURCES, SAMPLERS, ProblemSource, Sampler, check_problem
from torl.components.data.example_files import EXAMPLE_SOURCES, ExampleSource, check_example
from torl.components.engine import ENGINES, Engine
from torl.components.environments import ENVIRONMENT_SHORTHANDS, ENVIRONMENTS, Environment, EnvironmentLimits
from torl.components.formats import FORMATS, Format
from torl.components.rewards import REWARD_VALUE, REWARDS, Reward, check_value, count_positional
from torl.components.text.templates import TEMPLATE, PromptTemplate
from torl.components.tools import TOOL_SHORTHANDS, TOOLS, BaseTool, StatefulTool, Tool, tool_limits
from torl.components.trackers import TRACKERS, Tracker

PROBLEMS = ChosenFrom(
    PROBLEM_SOURCES,
    "problem source",
    "file",
    shorthand=("file", "path"),
    returns=Iterable[Problem],
    item_check=check_problem,
)
ProblemChoice = Annotated[Choice[ProblemSource], PROBLEMS]
EXAMPLES = ChosenFrom(
    EXAMPLE_SOURCES,
    "example source",
    "file",
    shorthand=("file", "path"),
    returns=Iterable[tuple[str, Any]],
    item_check=check_example,
)
ExampleChoice = Annotated[Choice[ExampleSource], EXAMPLES]
SamplerChoice = Annotated[Choice[Sampler], ChosenFrom(SAMPLERS, "sampler", "shuffled", positional_count=2)]
TemplateChoice = Annotated[Choice[PromptTemplate], TEMPLATE]
FormatChoice = Annotated[Choice[Format], ChosenFrom(FORMATS, "format", "torl", bases=(Format,))]
TOOL = ChosenFrom(
    TOOLS, "tool", common_options=tool_limits, option_shorthands=TOOL_SHORTHANDS, bases=(Tool, StatefulTool)
)
ToolChoice = Annotated[Choice[BaseTool], TOOL]
ENVIRONMENT = ChosenFrom(
    ENVIRONMENTS,
    "environment",
    common_options=lambda _: EnvironmentLimits,
    option_shorthands=ENVIRONMENT_SHORTHANDS,
    bases=(Environment,),
)
EnvironmentChoice = Annotated[Choice[Environment], ENVIRONMENT]
AGENT = ChosenFrom(AGENTS, "agent", common_options=limits_of, option_shorthands=AGENT_SHORTHANDS, bases=(Agent,))
AgentChoice = Annotated[Choice[Agent], AGENT]
EngineChoice = Annotated[Choice[Engine], ChosenFrom(ENGINES, "engine", "vllm", positional_count=1, bases=(Engine,))]
RewardChoice = Annotated[
    Choice[Reward],
    ChosenFrom(
        REWARDS,
        "reward",
        "rubric",
        positional_count=count_positional,
        bases=(Reward,),
        functions=True,
        returns=REWARD_VALUE,
        check=check_value,
        renamed=RENAMED_REWARDS,
    ),
]
MaskChoice = Annotated[Choice[Mask], MASK]
GroupFilterChoice = Annotated[Choice[GroupFilter], GROUP_FILTER]
MemberFilterChoice = Annotated[Choice[MemberFilter], MEMBER_FILTER]
EstimatorChoice = Annotated[
    Choice[Estimator],
    ChosenFrom(
        ESTIMATORS,
        "advantage estimator",
        "grpo",
        positional_count=1,
        returns=TokenAdvantages,
        check=check_advantages,
        by_step=True,
    ),
]
PolicyLossChoice = Annotated[
    Choice[PolicyLoss],
    ChosenFrom(
        POLICY_LOSSES,
        "policy loss",
        "clipped",
        positional_count=1,
        returns=PolicyLossValues,
        check=check_policy_loss,
        by_step=True,
    ),
]
AggregationChoice = Annotated[
    Choice[Aggregation],
    ChosenFrom(AGGREGATIONS, "aggregation", "token", positional_count=1, check=check_weights, by_step=True),
]
CorrectionChoice = Annotated[
    Choice[ImportanceCorrection],
    ChosenFrom(CORRECTIONS, "importance correction", positional_count=1, check=check_correction, by_step=True),
]
KlEstimatorChoice = Annotated[
    Choice[KlEstimator],
    ChosenFrom(KL_ESTIMATORS, "KL estimator", "k3", positional_count=1, check=check_kl, by_step=True),
]
TeacherPromptChoice = Annotated[
    Choice[TeacherPrompt], ChosenFrom({}, "teacher prompt", positional_count=2, check=check_teacher_prompt)
]
ImitationChoice = Annotated[
    Choice[Imitation], ChosenFrom(IMITATIONS, "imitation", positional_count=1, check=check_imitation, by_step=True)
]


TRACKER = ChosenFrom(TRACKERS, "tracker", positional_count=2, bases=(Tracker,))
TrackerChoice = Annotated[Choice[Tracker], TRACKER]
