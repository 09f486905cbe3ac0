"""Configuration: what is read is what was written, and every mistake is answered with a key and a way out."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from torl.config import TrainConfig
from torl.errors import ConfigError
from torl.settings import dump_config, fields_of, load_config, parse_command_line

MINIMAL = """
[run]
directory = "runs/test"
steps = 3
[model]
path = "model"
[data]
train = "train.jsonl"
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(MINIMAL)
    return path


def parse(path: Path, *options: str) -> TrainConfig:
    return parse_command_line(TrainConfig, "torl.train", "Train.", [str(path), *options])


def test_options_override_the_file(config_file: Path) -> None:
    config = parse(
        config_file,
        *("--rollout.max_tool_calls", "3"),
        "--learner.learning_rate=2e-5",
        *("--learner.betas", "[0.9, 0.95]"),
        *("--data.evaluation.heldout", "heldout.jsonl"),
        *("--sandbox.workers", "4"),
        "--run.resume",
    )
    assert config.rollout.max_tool_calls == 3
    assert config.learner.learning_rate == 2e-5
    assert config.learner.betas == (0.9, 0.95)
    assert config.data.evaluation == {"heldout": "heldout.jsonl"}
    assert config.sandbox.workers == 4
    assert config.run.resume is True
    assert config.run.steps == 3


@pytest.mark.parametrize(
    ("options", "old", "reference", "anyway"),
    [
        ([], False, False, False),
        (["--algorithm.epochs", "2"], True, False, False),
        (["--algorithm.mini_batches", "2"], True, False, False),
        (["--algorithm.kl_coefficient", "0.1"], False, True, True),
        (["--algorithm.kl_coefficient", "0.1", "--algorithm.kl_in", "reward"], True, True, False),
        (["--algorithm.kl_in", "reward"], False, False, False),
        (["--algorithm.entropy_bonus", "0.1"], False, False, True),
    ],
)
def test_what_an_algorithm_asks_for(
    config_file: Path, options: list[str], old: bool, reference: bool, anyway: bool
) -> None:
    algorithm = parse(config_file, *options).algorithm
    assert algorithm.needs_old_logprobs == old
    assert algorithm.needs_reference == reference
    assert algorithm.learns_without_advantage == anyway


def test_dumped_tree_reads_back_equal(config_file: Path, tmp_path: Path) -> None:
    config = parse(config_file, "--data.evaluation.heldout", "heldout.jsonl", "--algorithm.dual_clip", "3.0")
    again = tmp_path / "again.toml"
    again.write_text(dump_config(config))
    assert load_config(TrainConfig, again) == config


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("configs/*.toml")), ids=lambda path: path.stem)
def test_shipped_configs_are_valid(path: Path) -> None:
    load_config(TrainConfig, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rollout]\nmax_tool_cals = 1", "rollout.max_tool_cals is unknown; did you mean rollout.max_tool_calls?"),
        ("[rolout]\nmax_tool_calls = 1", "rolout is unknown; did you mean rollout?"),
        ("[rollout]\ntop_p = 2", "rollout.top_p: Input should be less than or equal to 1 (given: 2)"),
        ("[rollout]\ntop_p = nan", "rollout.top_p"),
        ("[rollout]\ntemperature = 0", "greedy samples"),
        ("[learner]\nschedule = 'konstant'", "learner.schedule"),
        ("[learner]\noffload_parameters = true", "offload_parameters needs zero_stage = 3"),
        (
            "[learner]\nzero_stage = 1\noffload_while_sampling = true",
            "offload_while_sampling needs zero_stage = 2 or 3",
        ),
        ("[sandbox]\nwall_seconds = 1", "wall_seconds must not be shorter"),
        ("[algorithm]\naggregation = 'fixed'", "aggregation = 'fixed' needs fixed_length"),
        ("[algorithm]\npolicy_loss = 'gspo'\ndual_clip = 3.0", "dual_clip is a part of policy_loss = 'clipped'"),
        ("[algorithm]\nimportance_low = 3.0", "importance_high must not be less than importance_low"),
        ("[algorithm]\nestimator = 'reinforce++'", "algorithm.estimator"),
        ("[selection]\naccuracy_window = [0.8, 0.2]", "accuracy_window must be two shares, the lower first"),
        ("[selection]\ndynamic_sampling = true", "dynamic_sampling needs drop_uniform_groups or accuracy_window"),
        ("[reward]\noverlong_buffer = 3072", "reward.overlong_buffer must be less than rollout.max_response_tokens"),
        ("rollout = 3", "rollout"),
        ("[rollout", "not valid TOML"),
    ],
)
def test_mistakes_in_the_file_are_named(config_file: Path, text: str, message: str) -> None:
    prefix = text + "\n" + MINIMAL if text.startswith("rollout =") else MINIMAL + text
    config_file.write_text(prefix)
    with pytest.raises(ConfigError) as error:
        parse(config_file)
    assert message in str(error.value)
    assert str(config_file) in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rollout.max_tool_cals", "1"], "unknown; did you mean --rollout.max_tool_calls?"),
        (["--rollout.max_tool_calls", "many"], "--rollout.max_tool_calls"),
        (["--rollout.max_tool_calls", "-1"], "--rollout.max_tool_calls"),
        (["stray"], "unexpected argument 'stray'"),
        (["--data.evaluation.heldout"], "needs a value"),
    ],
)
def test_mistakes_on_the_command_line_are_named(config_file: Path, options: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(config_file, *options)
    assert message in str(error.value)


def test_missing_file_and_missing_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse(tmp_path / "absent.toml")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    with pytest.raises(ConfigError, match="run is missing"):
        parse(empty)


def test_every_field_is_documented() -> None:
    assert [name for name, info in fields_of(TrainConfig) if not info.description] == []


def test_help_shows_every_field_quickly() -> None:
    """The limit counts CPU time, so that a busy machine does not change the result; alone the command takes 0.35 s."""
    seconds, shown = min(_help() for _ in range(3))
    assert seconds < 0.6
    for name, info in fields_of(TrainConfig):
        assert f"--{name}" in shown
        assert " ".join(info.description.split())[:30] in " ".join(shown.split())


def _help() -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = subprocess.run(
        [sys.executable, "-m", "torl.train", "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, shown
