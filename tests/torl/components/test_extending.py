"""Anyone can extend torl without a fork: a module that torl does not know is chosen by its place, and trained with."""

import ast
import asyncio
import inspect
import json
import re
import sys
import textwrap
import types
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

import custom_components
import mistakes
import torl
import torl_lab
from builders import group, printed, scored, scored_group, trajectory, turn
from scripted_engine import ENCODER
from scripted_run import ScriptedRun
from torl.__main__ import main
from torl.base.errors import ComponentError, ConfigError, EpisodeComponentError
from torl.base.options import ChosenFrom, load_object, options_of
from torl.base.runtime.processes.supervision import run_until_done
from torl.base.types import Outcome, OutcomeStatus, ScoredTrajectory, ToolRequest, TrainingSample
from torl.components.agents import Agent
from torl.components.algorithms.advantages import Estimator, EstimatorInputs
from torl.components.algorithms.aggregation import Aggregation
from torl.components.algorithms.imitation import Imitation
from torl.components.algorithms.losses import ImportanceCorrection, KlEstimator, LossInputs, PolicyLoss
from torl.components.algorithms.selection import GroupFilter, MemberFilter
from torl.components.algorithms.teacher_prompts import TeacherPrompt
from torl.components.engine import Engine
from torl.components.environments import Environment, Message, Reply, make_environment
from torl.components.formats import Format
from torl.components.rewards import Reward, make_reward
from torl.components.tools import BoundedTool, StatefulTool, Tool, ToolLimits, make_tool
from torl.learner.batch import with_batch_values
from torl.rollout.grading import score_group
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.choices import (
    AgentChoice,
    AggregationChoice,
    EnvironmentChoice,
    EstimatorChoice,
    FormatChoice,
    GroupFilterChoice,
    ImitationChoice,
    KlEstimatorChoice,
    MaskChoice,
    MemberFilterChoice,
    PolicyLossChoice,
    ProblemChoice,
    RewardChoice,
    TeacherPromptChoice,
    TemplateChoice,
    ToolChoice,
)
from torl.run.config.loading import load_config

CUSTOM = """
[run]
steps = 2
directory = "{directory}"

[model]
path = "torl:demo/base_model"

[data.train]
name = "custom_components:multiples"
count = 6

[data.template]
name = "custom_components:shouted"
ending = "?!"

[rollout]
prompts_per_step = 3
samples_per_prompt = 4
max_response_tokens = [[0, 160], [1, 120]]
max_tool_calls = 2
temperature = [[0, 1.0], [1, 0.8]]

[rollout.format]
name = "custom_components:Counted"
bracket = "["

[rollout.tools.counter]
name = "custom_components:LineCounter"
first = 100

[reward]
name = "custom_components:ShortAndTidy"
bonus = 0.25

[selection.members.some]
name = "custom_components:some"
count = 3

[selection.groups.toolless]
name = "custom_components:toolless"

[algorithm.estimator]
name = "custom_components:early_code"
scale = [[0, 2.0], [1, 1.0]]

[algorithm.policy_loss]
name = "custom_components:near_reference"
fraction = 0.5

[algorithm.kl]
reference = "current_policy"
prompt = {{ name = "custom_components:with_answer", hint = "Its answer:" }}
coefficient = 0.01
estimator = {{ name = "custom_components:symmetric", scale = 0.5 }}

[algorithm.imitation]
name = "custom_components:results"
weight = 0.1

[engine]
dtype = "float32"
max_sequences = 64
cpu_threads = 1

[learner]
zero_stage = 0
dtype = "float32"
learning_rate = 1e-4

[evaluation]
every_steps = 0
rollout.max_response_tokens = 8

[evaluation.reward]
name = "custom_components:ShortAndTidy"
bonus = 0.5

[data.evaluation.others]
name = "custom_components:multiples"
count = 2
"""


@pytest.fixture(scope="module")
def custom_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with everything a stranger's."""
    directory = tmp_path_factory.mktemp("strange") / "run"
    config = directory.with_suffix(".toml")
    config.write_text(CUSTOM.format(directory=directory))
    summary = torl.train(config)
    assert summary["train_seconds"] > 0
    return directory


def rows(directory: Path) -> list[dict[str, Any]]:
    steps = (directory / "trajectories").glob("step_*.jsonl")
    return [json.loads(line) for path in sorted(steps) for line in path.read_text().splitlines()]


@pytest.mark.timeout(600)
def test_custom_components_are_all_used_in_training(custom_run: Path) -> None:
    played = rows(custom_run)
    assert len(played) == 24
    assert {row["problem"] for row in played} == {problem.id for problem in custom_components.multiples(6)}
    assert all(row["format"] == "counted" for row in played)
    calls = [call for row in played for call in row["tool_calls"]]
    answered = [call for call in calls if call["status"] == "ok"]
    assert answered
    assert {call["tool"] for call in answered} == {"counter"}
    for call in answered:
        assert call["details"]["total"] > 100  # its own option, and its own memory
        assert call["observation"] == f"\n[{call['text']}\n```\n"
    for row in played:
        assert row["reward_parts"].keys() == {"short", "tidy"}
        assert row["reward"] == pytest.approx(sum(row["reward_parts"].values()))
        assert row["turn_rewards"] == [0.25 * (turn["stop_reason"] == "call") for turn in row["turns"]]


@pytest.mark.timeout(600)
def test_metrics_have_the_custom_names(custom_run: Path) -> None:
    trained = [json.loads(line) for line in (custom_run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in trained if "time/evaluation" in row]
    trained = [row for row in trained if "time/step" in row]
    assert (len(trained), len(evaluated)) == (2, 2)
    assert {row["evaluation/others/response/max_tokens"] for row in evaluated} == {8}
    for row in trained:
        assert {"reward/part/short", "reward/part/tidy", "tool/counter/starts"} <= row.keys()
        assert row["tool/counter/starts"] == 1
        assert row["learner/updates"] == 1
        assert row["selection/dropped_members/some"] == 3  # one of four in each of three groups
    scheduled = ("rollout.temperature", "rollout.max_response_tokens", "algorithm.estimator.scale")
    assert [[row[f"schedule/{name}"] for name in scheduled] for row in trained] == [[1.0, 160, 2.0], [0.8, 120, 1.0]]
    learned = [row for row in rows(custom_run) if row["advantage"] is not None]
    dropped = sum(row["selection/dropped_groups/toolless"] for row in trained)
    assert len(learned) == 3 * (6 - dropped) > 0
    imitated = sum(
        call["stop"] - call["start"] for row in learned for call in row["tool_calls"] if call["status"] == "ok"
    )
    assert sum(row["learner/imitated_tokens"] for row in trained) == imitated > 0
    assert all(row["learner/imitation_loss"] > 0 for row in trained)
    assert all(row["learner/reference_kl"] > 0 for row in trained)  # after another prompt


@pytest.mark.timeout(600)
def test_the_audit_of_such_a_run_finds_nothing(custom_run: Path) -> None:
    audit = torl_lab.verify(custom_run, logprob_samples=8, trust=True)
    assert audit.ok
    assert all(check.compared for check in audit.checks)
    assert audit["tokens"].compared == 24 + 2 * 2
    # And the order of the problems of each step, and the problems of each evaluation.
    assert audit["prompts"].compared == 24 + 2 * 2 + 2 + 2
    assert audit["rewards"].compared == 24 + 2 * 2


def test_the_configuration_holds_their_options(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(CUSTOM.format(directory=tmp_path / "run"))
    config = load_config(TrainConfig, path)
    assert config.rollout.format.make().bracket == "["  # type: ignore[attr-defined]
    assert config.reward.make().bonus == 0.25  # type: ignore[attr-defined]
    assert config.algorithm.estimator.target is custom_components.early_code
    path.write_text(CUSTOM.format(directory=tmp_path / "run").replace("bonus", "bonos"))
    with pytest.raises(torl.TorlError, match=r"reward\.bonos is unknown; did you mean reward\.bonus"):
        load_config(TrainConfig, path)


# --- mistakes of custom components ----------------------------------------------------------------------------------

BASE = """
[run]
steps = 1
directory = "{directory}"
[model]
path = "torl:demo/base_model"
[data]
train = {{ name = "custom_components:multiples", count = 6 }}
[rollout]
prompts_per_step = 3
samples_per_prompt = 4
{section}
"""


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            '[reward.parts]\nanswer = "mistakes:two_arguments"',
            "the parameters of two_arguments cannot be options: group: no value of a configuration is a Group",
        ),
        (
            '[reward.parts]\nanswer = "mistakes:two_numbers"',
            "parts.answer.limit is missing: the parameter 'limit' of mistakes:two_numbers has no default",
        ),
        ('[reward]\nname = "mistakes:Calculator"', r"reward: mistakes:Calculator is a Tool; a Reward is wanted"),
        (
            '[rollout.tools.x]\nname = "mistakes:TooFew"',
            "mistakes:TooFew is a Reward; a Tool or a StatefulTool is wanted",
        ),
        ('[rollout.tools.x]\nname = "mistakes:WithoutCall"', "mistakes:WithoutCall does not define call"),
        ('[rollout.tools.x]\nname = "mistakes:NotAsync"', r"mistakes:NotAsync\.call must be declared with `async def`"),
        (
            '[rollout.tools.x]\nname = "mistakes:SharedOptions"',
            r"SharedOptions cannot be options: \*\*options: .* names no",
        ),
        ('[rollout.tools.x]\nname = "mistakes:Precise"\ndigit = 3', r"x\.digit is unknown; did you mean .*x\.digits"),
        ('[rollout.tools.x]\nname = "mistakes:Precise"\ndigits = "many"', r"x\.digits.*valid integer"),
        ('[rollout.tools.x]\nname = "no_such_module:X"', "no_such_module cannot be imported: ModuleNotFoundError"),
        ('[rollout.tools.x]\nname = "mistakes:Calculater"', "mistakes has no Calculater; did you mean Calculator"),
        ('[rollout.tools.x]\nname = "calculator"', "no tool is called 'calculator'; there are: python"),
        ('[rollout.format]\nname = "mistakes:Room"', "mistakes:Room is an Environment; a Format is wanted"),
        (
            '[algorithm.estimator]\nname = "mistakes:TooFew"',
            "mistakes:TooFew is a Reward; an advantage estimator is wanted",
        ),
        (
            '[algorithm.policy_loss]\nname = "mistakes:without_inputs"',
            "must take 1 positional argument before its options",
        ),
        ('[algorithm.policy_loss]\nname = "mistakes:NO_PARAMETERS"', "is neither a class nor a function"),
    ],
)
@pytest.mark.timeout(10)
def test_mistake_in_a_configuration_is_refused(section: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE.format(directory=tmp_path / "run", section=section))
    with pytest.raises(ConfigError, match=message):
        load_config(TrainConfig, path)


GROUP = group(trajectory("a", "b"), trajectory("c", sample=1))
TOOL = 'the tool "x" \\(mistakes:{}\\)'


async def call_tool(name: str, **options: Any) -> None:
    tool = make_tool("x", chosen(ToolChoice, f"mistakes:{name}", **options))
    await tool.start(torl.RunContext())
    await tool.session(0).call({"divisor": 0})


async def grade(name: str) -> None:
    await score_group(chosen(RewardChoice, f"mistakes:{name}").make(), GROUP)


async def step(name: str) -> None:
    environment = make_environment(chosen(EnvironmentChoice, f"mistakes:{name}"))
    session, _ = await environment.begin(torl.Problem("p", "?", "1"), 0, [{"role": "user", "content": "?"}])
    await session.answer(Message("I look.", "I look."))


async def environment_rewards(name: str) -> None:
    environment = make_environment(chosen(EnvironmentChoice, f"mistakes:{name}"))
    session, _ = await environment.begin(torl.Problem("p", "?", "1"), 0, [{"role": "user", "content": "?"}])
    await session.rewards(None)


async def estimate(name: str) -> None:
    rewards = EstimatorInputs(np.ones(2), ["g", "g"], np.array([2, 3]), np.ones(5, dtype=bool))
    chosen(EstimatorChoice, f"mistakes:{name}").bind()(rewards)


async def loss(name: str) -> None:
    numbers = torch.zeros(3)
    inputs = LossInputs(numbers, numbers, numbers, numbers == 0, numbers.long(), numbers, numbers)
    chosen(PolicyLossChoice, f"mistakes:{name}").bind()(inputs)


async def batch_values(name: str) -> None:
    samples = [TrainingSample(np.zeros(4, np.int32), np.arange(4) > 0, *[np.zeros(4, np.float32)] * 2)]
    algorithm = AlgorithmConfig.model_validate({"policy_loss": f"mistakes:{name}"})
    with_batch_values(samples, algorithm, seed=0)


async def estimate_kl(name: str) -> None:
    numbers = torch.zeros(3)
    inputs = LossInputs(numbers, numbers, numbers, numbers == 0, numbers.long(), numbers, numbers, numbers)
    chosen(KlEstimatorChoice, f"mistakes:{name}").bind()(inputs)


async def write_teacher_prompt(name: str) -> None:
    graded = scored_group(True, False)
    chosen(TeacherPromptChoice, f"mistakes:{name}").bind()(graded.members[0], graded)


async def filter_groups(name: str) -> None:
    chosen(GroupFilterChoice, f"mistakes:{name}").bind()(scored_group(True, False))


async def filter_members(name: str) -> None:
    chosen(MemberFilterChoice, f"mistakes:{name}").bind()(scored_group(True, False))


async def imitate(name: str) -> None:
    chosen(ImitationChoice, f"mistakes:{name}").bind()(scored(trajectory("a")))


async def aggregate(name: str) -> None:
    chosen(AggregationChoice, f"mistakes:{name}").bind()(np.array([1, 2]))


async def parse(name: str) -> None:
    chosen(FormatChoice, f"mistakes:{name}").make().parse_calls(turn("text"))


async def observe(name: str) -> None:
    form = chosen(FormatChoice, f"mistakes:{name}").make()
    form.render_observation(turn("text"), [printed()], b"", lambda text, limit: True)


async def run_agent(name: str) -> None:
    await chosen(AgentChoice, f"mistakes:{name}").make().run(torl.Problem("p", "?", "1"), "http://host")


async def read_problems(name: str) -> None:
    list(chosen(ProblemChoice, f"mistakes:{name}").bind()())


async def grade_part(name: str) -> None:
    await score_group(make_reward(chosen(RewardChoice, f"mistakes:{name}")), GROUP)


async def mask(name: str) -> None:
    chosen(MaskChoice, f"mistakes:{name}").bind()(ScoredTrajectory(GROUP.trajectories[0], torl.Grade(1.0), 1.0))


async def write_prompt(name: str) -> None:
    chosen(TemplateChoice, f"mistakes:{name}").bind()(torl.Problem("p", "?", "1"))


def chosen(annotation: Any, name: str, **options: Any) -> Any:
    return TypeAdapter(annotation).validate_python({"name": name, **options})


@pytest.mark.parametrize(
    ("use", "name", "fails_episode", "first", "second"),
    [
        (call_tool, "Calculator", True, TOOL + r" failed in call\(\{'divisor': 0\}\)", "ZeroDivisionError: division"),
        (
            call_tool,
            "ReturnsText",
            True,
            TOOL + " returned an invalid value from call",
            "expected Outcome.*got str 'text'",
        ),
        (call_tool, "ReturnsNone", True, TOOL + " returned an invalid value", "expected Outcome.*got None"),
        (call_tool, "StartFails", False, r"the tool .* failed in start\(RunContext\)", "OSError: no such device"),
        (
            grade,
            "TooFew",
            False,
            r"the reward \(mistakes:{}\) returned .*grade\(Group of problem 'p'\)",
            "expected 2 grades",
        ),
        (grade, "NotANumber", False, "the reward", "trajectory 0 must be finite: reward = nan"),
        (grade, "OtherParts", False, "the reward", "the parts of trajectory 0 add up to 1.5, but its reward is 1"),
        (grade, "Dictionaries", False, "the reward", "expected Grade for trajectory 0, got dict"),
        (grade, "OneNumber", False, "the reward", "expected a list with one Grade for each trajectory, got float 1.0"),
        (grade, "RaisesKeyError", False, r"the reward \(mistakes:{}\) failed in grade", "KeyError: 'level'"),
        (estimate, "wrong_shape", False, r"the advantage estimator \(mistakes:{}\)", r"of shape \(5,\), got \(2,\)"),
        (
            estimate,
            "wrong_dtype",
            False,
            "the advantage estimator",
            "advantages_M as an array of float32, got .*float64",
        ),
        (estimate, "infinite", False, "the advantage estimator", "advantages_M must be finite, got 5 other values"),
        (estimate, "an_array", False, "the advantage estimator", "expected TokenAdvantages, got ndarray"),
        (loss, "a_tensor", False, r"the policy loss \(mistakes:{}\)", "expected PolicyLossValues, .* got Tensor"),
        (
            batch_values,
            "with_one_value",
            False,
            r"the policy loss \(mistakes:one_value\)",
            r"expected values of shape \(3,\), got \(1,\)",
        ),
        (estimate_kl, "float_estimate", False, "the KL estimator", "expected the estimate as a tensor of floats, got"),
        (
            write_teacher_prompt,
            "question",
            False,
            r"the teacher prompt \(mistakes:{}\)",
            "expected Problem or None, got str",
        ),
        (filter_groups, "neither_yes_nor_no", False, r"the group filter \(mistakes:{}\)", "expected bool, got None"),
        (filter_members, "the_same_twice", False, "the member filter", "got one of them twice"),
        (filter_members, "numbers", False, "the member filter", "expected members of the group, got another object"),
        (imitate, "negative_weights", False, r"the imitation \(mistakes:{}\)", "weights must be finite and at least 0"),
        (aggregate, "one_weight", False, "the aggregation", r"expected weights of shape \(2,\), got \(1,\)"),
        (
            parse,
            "NoCalls",
            False,
            r"the format \(mistakes:{}\).*parse_calls\(Turn\)",
            "expected a list of ToolRequest and",
        ),
        (
            observe,
            "NoCalls",
            False,
            "the format .* render_observation",
            "expected str, Markup or a list of them, got Outcome",
        ),
        (
            step,
            "Room",
            True,
            r"the environment \(mistakes:RoomSession\).*step\(Message\)",
            "expected Reply, got str 'You see",
        ),
        (environment_rewards, "Room", True, "the environment", "the reward 'score' is not a finite number: str 'high'"),
        (
            run_agent,
            "Counts",
            True,
            r"the agent \(mistakes:{}\).*run\(Problem of problem 'p', ...\)",
            "expected str or None",
        ),
        (read_problems, "cut_off", False, r"the problem source \(mistakes:{}\)", "ValueError: the file is cut off"),
        (
            read_problems,
            "dictionaries",
            False,
            "the problem source",
            r"expected Problem\(id, question, answer\), got dict",
        ),
        (read_problems, "number_as_answer", False, "the problem source", "expected str as answer .* 'p', got int 1"),
        (grade_part, "exiting_reward", False, "the reward", "SystemExit: 3"),
        (grade_part, "text_reward", False, "the reward", r"expected a finite number or a Grade, got str '1\.0'"),
        (grade_part, "infinite_reward", False, "the reward", "expected a finite number or a Grade, got float nan"),
        (mask, "mask_for_each_token", False, r"the mask \(mistakes:{}\)", "expected bool: .*; got list"),
        (write_prompt, "no_prompt", False, "the prompt template", "expected a text, a list of messages.*; got int 1"),
    ],
)
@pytest.mark.timeout(10)
async def test_mistake_in_a_call_is_one_error_of_three_lines(
    use: Any, name: str, fails_episode: bool, first: str, second: str
) -> None:
    with pytest.raises(ComponentError) as raised:
        await use(name)
    assert isinstance(raised.value, EpisodeComponentError) == fails_episode
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert re.match(first.replace("{}", name), lines[0])
    assert re.match(second, lines[1]) or re.search(second, lines[1])
    assert re.match(rf"at {re.escape(mistakes.__file__)}:\d+ in \w+", lines[2])


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome(OutcomeStatus.ERROR, 7), "expected str as the text of the Outcome, got int 7"),
        (Outcome("ok", "x"), "expected OutcomeStatus as its status, got str 'ok'"),
        (Outcome(OutcomeStatus.ERROR, "x", KeyError("a")), "expected the type of its error as str.*got KeyError"),
        (Outcome(OutcomeStatus.OK, "x", details=None), "expected a mapping as its details, got None"),
        (Outcome(OutcomeStatus.OK, "x", details={"seen": {1, 2}}), "expected plain JSON.*got 'seen': set"),
        (Outcome(OutcomeStatus.OK, "x", details={"seen": [{"a": b""}]}), "expected plain JSON.*got 'seen': list"),
        (Outcome(OutcomeStatus.OK, "x", details={(1, 2): 3}), r"expected plain JSON.*got \(1, 2\): int 3"),
    ],
)
async def test_every_attribute_of_an_outcome_is_checked(outcome: Outcome, message: str) -> None:
    class Careless(mistakes.Calculator):
        async def call(self, arguments: Any) -> Outcome:
            return outcome

    class CarelessRoom(mistakes.RoomSession):
        async def step(self, message: Message) -> Reply:
            return Reply([outcome])

    with pytest.raises(EpisodeComponentError, match=message):
        await Careless().call({})
    with pytest.raises(EpisodeComponentError, match=message):
        await CarelessRoom().step(Message("", "", [ToolRequest("look", {})]))


async def test_an_outcome_may_hold_mappings_and_a_call_may_name_its_argument() -> None:
    class Careful(mistakes.Calculator):
        async def call(self, arguments: Any) -> Outcome:
            return Outcome(OutcomeStatus.OK, "x", details={1: types.MappingProxyType({"a": [UserDict(b=None)]})})

    assert (await Careful().call(arguments={})).ok


def test_tools_need_a_description() -> None:
    with pytest.raises(
        ComponentError, match=r"\(mistakes:WithoutDescription\) needs the attribute 'description'.*None"
    ):
        make_tool("x", chosen(ToolChoice, "mistakes:WithoutDescription"))
    with pytest.raises(
        ComponentError, match=r"(?s)\(mistakes:DescribedAsJson\).*expected ToolSchema.*got 'look': dict"
    ):
        make_environment(chosen(EnvironmentChoice, "mistakes:DescribedAsJson"))


def test_exception_of_a_constructor_names_the_component() -> None:
    choice = chosen(ToolChoice, "mistakes:Precise", digits=10)
    with pytest.raises(
        ComponentError, match=r"(?s)the tool \(mistakes:Precise\) failed in __init__\(\)\nOverflowError.*at "
    ):
        make_tool("x", choice)


def test_torl_error_of_a_component_keeps_its_meaning() -> None:
    class Unavailable(mistakes.Calculator):
        async def call(self, arguments: Any) -> Any:
            raise torl.base.errors.SandboxError("the sandbox is down")

    with pytest.raises(torl.base.errors.SandboxError, match="the sandbox is down"):
        asyncio.run(Unavailable().call({}))


def test_format_that_cannot_call_a_tool_of_the_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    section = '[rollout.tools.x]\nname = "mistakes:Calculator"'
    path.write_text(BASE.format(directory=tmp_path / "run", section=section))
    with pytest.raises(ConfigError, match=r"rollout\.tools\.x cannot be called in the format 'torl': it calls python"):
        load_config(TrainConfig, path)


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ('name = "mistakes:Calculator"', "none"),
        ('name = "custom_components:LineCounter"', r"text \(string\)"),
        ('name = "mistakes:RunsProgram"', r"code \(integer, required\), program \(string, required\)"),
        ('function = "mistakes:run_program"', r"program \(string, required\), seed \(integer\)"),
    ],
)
def test_format_of_blocks_refuses_a_tool_with_other_arguments(tool: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE.format(directory=tmp_path / "run", section=f"[rollout.tools.python]\n{tool}"))
    message = (
        r"rollout\.tools\.python cannot be called in the format 'torl': a call has one argument, the string 'code', "
        f"and the tool has {found}; rename"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(TrainConfig, path)


@pytest.mark.parametrize(
    "tool",
    ['name = "mistakes:AnyArguments"', 'name = "mistakes:TextOrNothing"', 'function = "mistakes:run_code"'],
)
def test_format_of_blocks_accepts_a_tool_with_its_argument(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE.format(directory=tmp_path / "run", section=f"[rollout.tools.python]\n{tool}"))
    assert load_config(TrainConfig, path).rollout.tools["python"].is_imported


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_shape", r"returned an invalid value .*\nexpected advantages_M of shape \(48,\), got \(8,\)"),
        ("an_array", "returned an invalid value .*\nexpected TokenAdvantages, got ndarray"),
        ("by_level", "failed in by_level.*\nAttributeError: .* has no attribute 'levels'"),
    ],
)
def test_wrong_estimator_is_refused_before_the_run(name: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE.format(directory=tmp_path / "run", section=f'[algorithm.estimator]\nname = "mistakes:{name}"'))
    with pytest.raises(ComponentError, match=message):
        load_config(TrainConfig, path)


def test_torl_reports_a_component_that_fails_in_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(BASE.format(directory=tmp_path / "run", section='[algorithm]\nestimator = "mistakes:an_array"'))
    assert main(["train", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: the advantage estimator (mistakes:an_array) returned an invalid value")


def test_failing_tool_drops_episodes_until_the_run_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ScriptedRun(tmp_path, rollout={"max_failed_fraction": 0.0})
    run.player.tools = {"python": BoundedTool("python", mistakes.Calculator(), ToolLimits())}  # no divisor
    run.engine.script = lambda _: ENCODER.encode("\n```python\nprint(1)\n```\n```output\n")
    assert run_until_done(run.step_player.play(0)) == 1
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) <= 4
    assert 'the tool "python" (mistakes:Calculator) failed in call' in errors
    assert "KeyError: 'divisor'" in errors


def test_failing_reward_stops_the_run_with_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ScriptedRun(tmp_path, graded_by=mistakes.RaisesKeyError())
    assert run_until_done(run.step_player.play(0)) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert errors[0].startswith("error: the reward (mistakes:RaisesKeyError) failed in grade(Group of problem")


# --- the examples of the documentation ------------------------------------------------------------------------------


def example_of(documented: Any) -> str:
    """The Python of the example in a docstring: its indented lines up to the section that names it."""
    text = inspect.getdoc(documented) or ""
    blocks = [line[4:] if line.startswith("    ") else "" for line in text.splitlines()]
    program = "\n".join(blocks).partition("\n[")[0]
    return textwrap.dedent(program).strip()


def section_of(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    return next(line.strip() for line in reversed(text.splitlines()) if line.strip().startswith("name = "))


FUNCTIONS = [
    Estimator,
    PolicyLoss,
    Aggregation,
    ImportanceCorrection,
    Imitation,
    GroupFilter,
    MemberFilter,
    KlEstimator,
    TeacherPrompt,
]
BASES = [Agent, Tool, StatefulTool, Environment, Format, Reward, Engine]


@pytest.mark.parametrize("protocol", [*BASES, *FUNCTIONS], ids=lambda protocol: protocol.__name__)
def test_docstring_example_can_be_chosen_unchanged(
    protocol: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = example_of(protocol)
    place = section_of(protocol).partition('"')[2].rstrip('"')
    module_name, _, name = place.partition(":")
    assert 5 <= len(program.splitlines()) <= 40
    tree = ast.parse(program)
    assert name in {getattr(node, "name", None) for node in tree.body}
    for package in [".".join(module_name.split(".")[:depth]) for depth in range(1, module_name.count(".") + 1)]:
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    module = types.ModuleType(module_name)
    monkeypatch.setitem(sys.modules, module_name, module)
    exec(compile(program, module_name, "exec"), vars(module))
    target = load_object(place)
    given = 2 if protocol is TeacherPrompt else 1 if protocol in (Engine, *FUNCTIONS) else 0
    assert issubclass(options_of(target, given), torl.Section)
    bases = (protocol,) if protocol in BASES else ()
    assert ChosenFrom({}, "example", positional_count=given, bases=bases).find(place) is target
