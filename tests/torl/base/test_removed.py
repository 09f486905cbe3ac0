"""Settings that torl no longer has: errors name what replaces them, and the configurations of earlier runs are read."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import torl
from torl.base.errors import ConfigError
from torl.base.removed import is_recorded, translated
from torl.base.removed_settings import REMOVED
from torl.components.trackers import Tracker
from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.config.command_line import parse_command_line
from torl.run.config.loading import find_config, load_config
from torl.run.records.run_directory import changed_keys, config_files, read_configs

RECORDED = "# The configuration from step 0 on.\n"
RUN = "[model]\npath = 'model'\n[data]\ntrain = 'train.jsonl'\n[run]\ndirectory = 'run'\nsteps = 1\n"


def recorded(directory: Path, text: str) -> TrainConfig:
    """The configuration of a run that recorded this text."""
    directory.mkdir()
    (directory / "config.toml").write_text(f"{RECORDED}{RUN}{text}")
    ((_, config),) = read_configs(directory)
    assert isinstance(config, TrainConfig)
    return config


def written(text: str) -> TrainConfig:
    """The configuration of a file of a user."""
    path = Path("config.toml")
    path.write_text(f"{RUN}{text}")
    return load_config(TrainConfig, path)


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


PAIRS = {
    "selection": (
        """
        [selection]
        drop_zero_variance_groups = true
        accuracy_range = [0.1, 0.9]
        drop_undecided_above = 0.4
        [selection.groups.few_complete]
        name = "few_complete"
        at_least = 3
        """,
        """
        [selection.groups]
        zero_variance = {}
        accuracy_outside = { range = [0.1, 0.9] }
        undecided = { above = 0.4 }
        few_complete = { at_least = 3 }
        """,
    ),
    "selection without filters": ("[selection]\ndrop_zero_variance_groups = false\n", ""),
    "trackers": (
        """
        [run.trackers.wandb]
        name = "wandb"
        project = "sums"
        run_name = "first"
        examples_every = 10
        [run.trackers.local]
        name = "trackio"
        project = "torl"
        space_id = "me/runs"
        """,
        """
        [run.trackers.wandb]
        arguments = { project = "sums", name = "first" }
        [run.trackers.local]
        name = "trackio"
        arguments = { project = "torl", space_id = "me/runs" }
        """,
    ),
    "rewards": (
        """
        [reward.parts.answer]
        name = "answer"
        correct = 2.0
        [evaluation.reward]
        name = "answer"
        """,
        """
        [reward.parts]
        answer = { name = "math", correct = 2.0 }
        [evaluation]
        reward = "math"
        """,
    ),
    "options that are a list now": (
        """
        [data.sampler]
        name = "curriculum"
        cooldown_after = 3
        cooldown_epochs = 2
        [algorithm.policy_loss]
        name = "vespo"
        power = 1.5
        decay = 2.5
        negative_decay = 4.0
        [selection.members.roc]
        name = "resample_on_correct"
        count = 4
        min_wrong = 1
        """,
        """
        [data.sampler]
        name = "curriculum"
        cooldown = [3, 2]
        [algorithm.policy_loss]
        name = "vespo"
        positive = [1.5, 2.5]
        negative = [3.0, 4.0]
        [selection.members.roc]
        name = "resample_on_correct"
        count = 4
        at_least = [2, 1]
        """,
    ),
    "settings that are one now": (
        """
        [selection]
        dynamic_sampling = true
        max_rounds = 4
        [selection.groups.hard]
        name = "accuracy_outside"
        low = 0.1
        high = 0.8
        [ablation]
        shuffle_observations = false
        shuffle_rewards = true
        [data.template]
        name = "rc_grpo"
        high = "good"
        [rollout]
        format = { name = "hermes" }
        [rollout.environment]
        name = "openenv"
        openenv = "http://x"
        max_turns = 5
        retries = 0
        [rollout.tools.files]
        name = "mcp"
        mcp = "true"
        env = { LEVEL = "error" }
        inherit_env = ["HOME"]
        [engine]
        name = "vllm"
        stall_timeout_seconds = 5.0
        [cluster]
        address = "local"
        startup_timeout_seconds = 5.0
        """,
        """
        [selection]
        max_rounds = 4
        [selection.groups.hard]
        name = "accuracy_outside"
        range = [0.1, 0.8]
        [ablation]
        shuffle = "rewards"
        [data.template]
        name = "rc_grpo"
        lines = ["good", "<|low_reward|>"]
        [rollout]
        format = "hermes"
        max_turns = 5
        [rollout.environment]
        openenv = "http://x"
        [rollout.tools.files]
        mcp = "true"
        env = { LEVEL = "error", HOME = true }
        """,
    ),
    "settings that were off": (
        """
        [selection]
        dynamic_sampling = false
        max_rounds = 10
        [ablation]
        shuffle_observations = false
        shuffle_rewards = false
        [algorithm.kl]
        current_policy = false
        """,
        "",
    ),
    "current policy": (
        "[algorithm.kl]\ncurrent_policy = true\nprompt = { name = 'torl.recipes.sdpo:with_answer' }\n",
        "[algorithm.kl]\nreference = 'current_policy'\nprompt = 'torl.recipes.sdpo:with_answer'\n",
    ),
    "reference model": ("[algorithm.kl]\npath = 'teacher'\n", "[algorithm.kl]\nreference = 'teacher'\n"),
    "options with another name": (
        """
        [rollout.tools.python]
        name = "sandbox_fusion"
        url = "http://x"
        run_timeout_seconds = 5.0
        [engine]
        name = "vllm"
        enforce_eager = true
        """,
        """
        [rollout.tools.python]
        name = "sandbox_fusion"
        url = "http://x"
        wall_seconds = 5.0
        [engine]
        arguments = { enforce_eager = true }
        """,
    ),
    "settings of evaluations": (
        """
        [evaluation]
        temperature = 1.0
        top_p = 0.7
        stop = ["</answer>"]
        """,
        """
        [evaluation.rollout]
        top_p = 0.7
        stop = ["</answer>"]
        """,
    ),
    "offloading": (
        """
        [learner]
        zero_stage = 3
        offload_while_sampling = false
        offload_optimizer = true
        offload_parameters = true
        """,
        """
        [learner]
        zero_stage = 3
        offload = "all"
        """,
    ),
    "offloading while sampling": (
        "[learner]\noffload_while_sampling = true\noffload_optimizer = false\noffload_parameters = false\n",
        "[learner]\noffload = 'while_sampling'\n",
    ),
    "unset offloading": ("[learner]\noffload_optimizer = false\noffload_parameters = false\n", ""),
    "values that are constant now": (
        """
        signal_report = true
        [health]
        every_steps = 1
        [algorithm]
        keep_reference = false
        [rollout.tools.python]
        name = "python"
        output_kib = 1024
        """,
        "",
    ),
}
"""The text of an earlier run's configuration, and the same in the present settings."""


@pytest.mark.parametrize("name", PAIRS)
def test_configuration_of_an_earlier_run_is_read_in_present_settings(name: str, tmp_path: Path) -> None:
    before, now = PAIRS[name]
    found, expected = recorded(tmp_path / "run", before), written(now)
    assert found == expected
    assert list(found.selection.groups) == list(expected.selection.groups)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("text", "value", "other"),
    [
        ("[algorithm.estimator]\nname = 'adatir'\nmax_calls = 4\nmargin = {}\n", "0.1", "0.2"),
        ("[algorithm.policy_loss]\nname = 'dppo'\nmax_ratio = {}\n", "20.0", "5.0"),
        ("[rollout.tools.python]\nname = 'python'\noutput_kib = {}\n", "1024", "64"),
        ("[rollout.tools.add]\nname = 'mcp'\nmcp = 'true'\nmax_result_characters = {}\n", "20000", "64"),
    ],
)
def test_recorded_value_that_torl_does_not_compute_with_is_refused(
    text: str, value: str, other: str, same: bool, tmp_path: Path
) -> None:
    """A run with another margin would have false mismatches."""
    if same:
        recorded(tmp_path / "run", text.format(value))
        return
    with pytest.raises(ConfigError, match=rf"= {other}: torl computes with {value} now; .* Use the version of torl"):
        recorded(tmp_path / "run", text.format(other))


def test_option_of_a_custom_tracker_is_no_removed_one(tmp_path: Path) -> None:
    config = recorded(tmp_path / "run", "[run.trackers.mine]\nname = 'test_removed:Projects'\nproject = 'sums'\n")
    assert config.run.trackers["mine"].options.model_dump() == {"project": "sums"}


class Projects(Tracker):
    def __init__(self, run_directory: Path, resume_step: int | None, project: str) -> None: ...

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None: ...


@pytest.mark.parametrize("section", ["[reward]\nname = 'answer'", "[reward.parts]\nanswer = {}"])
def test_removed_name_of_a_reward_is_refused_with_the_present_one(section: str) -> None:
    with pytest.raises(ConfigError, match="is called 'answer'; it is 'math' now"):
        written(section)


def test_removed_keyword_of_a_call_is_refused_with_its_successor() -> None:
    with pytest.raises(
        ConfigError, match=r"use_tools is unknown; write evaluation=\{'rollout': \{'max_tool_calls': 0\}\}"
    ):
        torl.evaluate("model", "train.jsonl", use_tools=False)


def test_earlier_run_has_no_changed_settings_where_it_is_resumed(tmp_path: Path) -> None:
    before, now = PAIRS["selection"]
    config = written(now)
    tree = tomllib.loads(str(config))
    del tree["selection"]["groups"]
    tree["selection"] |= tomllib.loads(before)["selection"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(RECORDED + tomli_w.dumps(tree))
    assert changed_keys(tmp_path / "run", config) == []
    assert load_config(TrainConfig, find_config("run")) == config


def test_recorded_configuration_is_recognized(tmp_path: Path) -> None:
    config = written("")
    (text,) = config_files(tmp_path / "run", config).values()
    assert is_recorded(text.decode())
    assert not is_recorded(str(config))


@pytest.mark.parametrize(
    ("setting", "value"), [("accuracy_range", "[0.0, 1.0]"), ("drop_zero_variance_groups", "true")]
)
def test_removed_setting_is_refused_with_its_successor(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"config.toml: selection.{setting} is unknown; write selection.groups"):
        written(f"[selection]\n{setting} = {value}\n")
    with pytest.raises(ConfigError, match=f"--selection.{setting} is unknown; write selection.groups"):
        parse_command_line(TrainConfig, "torl train", "", ["demo", f"--selection.{setting}", value])
    with pytest.raises(ConfigError, match=f"selection.{setting} is unknown; write"):
        torl.train("demo", selection={setting: True})


@pytest.mark.parametrize("name", REMOVED)
def test_no_removed_setting_is_one(name: str) -> None:
    """Its successor is in no message, and its value would be lost, if a setting had its name again."""
    tree: dict[str, Any] = {}
    section, of = tree, REMOVED[name].of
    name = name.replace("*", next(iter(of), "python"))
    *parents, key = name.split(".")
    for part in parents:
        section = section.setdefault(part, {})
    section[key] = [0.0, 1.0]
    section["name"] = next(iter(of), "")
    assert translated(tree) != tree
    given: dict[str, Any] = {name: [0.0, 1.0]}
    if name.startswith("rollout.environment."):
        given |= {"rollout.environment.name": "openenv", "rollout.environment.openenv": "http://x"}
    if name.startswith("rollout.agent."):
        given["rollout.agent.command"] = "agent"
    config_class = FinetuneConfig if name.startswith("finetune.") else TrainConfig
    with pytest.raises(ConfigError, match=" is unknown; "):
        load_config(config_class, find_config("demo"), given)
