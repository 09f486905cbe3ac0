"""Anyone can extend torl without a fork: a module that torl does not know is chosen by its place, and trained with."""

import ast
import inspect
import json
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

import strangers
import torl
from torl.agents import Agent
from torl.algorithms.advantages import Estimator
from torl.algorithms.aggregation import Aggregation
from torl.algorithms.losses import ImportanceCorrection, PolicyLoss
from torl.config import TrainConfig
from torl.config.loading import load_config
from torl.engine import Engine
from torl.environments import Environment
from torl.formats import Format
from torl.options import ChosenFrom, load_object, options_of
from torl.rewards import Reward
from torl.tools import StatefulTool, Tool

STRANGE = """
[run]
steps = 2
directory = "{directory}"

[model]
path = "torl:demo/base_model"

[data.train]
name = "strangers:multiples"
count = 6

[data.template]
name = "strangers:shouted"
ending = "?!"

[rollout]
prompts_per_step = 3
samples_per_prompt = 4
max_response_tokens = 160
max_tool_calls = 2

[rollout.format]
name = "strangers:Counted"
bracket = "["

[rollout.tools.counter]
name = "strangers:LineCounter"
first = 100

[reward]
name = "strangers:ShortAndTidy"
bonus = 0.25

[algorithm.estimator]
name = "strangers:scaled"
scale = 2.0

[algorithm.policy_loss]
name = "strangers:likelihood"
weight = 0.5

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
"""


@pytest.fixture(scope="module")
def strange_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with everything a stranger's."""
    directory = tmp_path_factory.mktemp("strange") / "run"
    config = directory.with_suffix(".toml")
    config.write_text(STRANGE.format(directory=directory))
    summary = torl.train(config)
    assert summary["train_seconds"] > 0
    return directory


def rows(directory: Path) -> list[dict[str, Any]]:
    steps = (directory / "trajectories").glob("step_*.jsonl")
    return [json.loads(line) for path in sorted(steps) for line in path.read_text().splitlines()]


@pytest.mark.timeout(600)
def test_a_strangers_parts_are_all_used_in_training(strange_run: Path) -> None:
    played = rows(strange_run)
    assert len(played) == 24
    assert {row["problem"] for row in played} == {problem.id for problem in strangers.multiples(6)}
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
def test_its_metrics_have_the_strangers_names(strange_run: Path) -> None:
    trained = [json.loads(line) for line in (strange_run / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in trained if "time/step" in row]
    assert len(trained) == 2
    for row in trained:
        assert {"reward/part/short", "reward/part/tidy", "tool/counter/starts"} <= row.keys()
        assert row["tool/counter/starts"] == 1
        assert row["learner/updates"] == 1


@pytest.mark.timeout(600)
def test_the_audit_of_such_a_run_finds_nothing(strange_run: Path) -> None:
    audit = torl.verify(strange_run, logprob_samples=8)
    assert audit.ok
    assert {check.name: check.compared > 0 for check in audit.checks} == dict.fromkeys(
        ("tokens", "versions", "rewards", "advantages", "logprobs"), True
    )


def test_the_configuration_holds_their_options(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(STRANGE.format(directory=tmp_path / "run"))
    config = load_config(TrainConfig, path)
    assert config.rollout.format.make().bracket == "["  # type: ignore[attr-defined]
    assert config.reward.make().bonus == 0.25  # type: ignore[attr-defined]
    assert config.algorithm.estimator.target is strangers.scaled
    path.write_text(STRANGE.format(directory=tmp_path / "run").replace("bonus", "bonos"))
    with pytest.raises(torl.TorlError, match=r"reward\.bonos is unknown; did you mean reward\.bonus"):
        load_config(TrainConfig, path)


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


FUNCTIONS = [Estimator, PolicyLoss, Aggregation, ImportanceCorrection]
BASES = [Agent, Tool, StatefulTool, Environment, Format, Reward, Engine]


@pytest.mark.parametrize("protocol", [*BASES, *FUNCTIONS], ids=lambda protocol: protocol.__name__)
def test_the_example_of_a_protocol_can_be_chosen_as_it_stands(
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
    given = 1 if protocol in (Engine, *FUNCTIONS) else 0
    assert issubclass(options_of(target, given), torl.Section)
    bases = (protocol,) if protocol in BASES else ()
    assert ChosenFrom({}, "example", given=given, bases=bases).find(place) is target
