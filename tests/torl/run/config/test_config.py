"""Configuration: a written configuration is read back, and every mistake is answered with a key and a way out."""

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from places import ROOT
from torl.__main__ import main
from torl.base.errors import ConfigError
from torl.base.options import Choice
from torl.components.rewards.rubric import RubricOptions
from torl.components.tools import PythonTool
from torl.recipes.torl import ToRLFormat, ToRLOptions
from torl.recipes.zerotir import ZeroTIRFormat
from torl.run.config import AlgorithmConfig, EvaluateConfig, ModelRunConfig, SampleConfig, TrainConfig
from torl.run.config.command_line import parse_command_line
from torl.run.config.fields import choice_at, choice_of_field, fields_of
from torl.run.config.loading import find_config, load_config, presets

GIANTS = ["torch", "vllm", "deepspeed", "transformers"]
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


def chosen(choice: Choice[Any]) -> dict[str, Any]:
    """The section that a choice would be written as."""
    return choice.dump()


# --- the command line over the file -------------------------------------------------------------------------------


def test_options_override_the_file(config_file: Path) -> None:
    config = parse(
        config_file,
        *("--rollout.max_tool_calls", "3"),
        "--learner.learning_rate=2e-5",
        *("--learner.betas", "[0.9, 0.95]"),
        *("--data.evaluation.heldout", "heldout.jsonl"),
        *("--rollout.tools.python.workers", "4"),
        "--run.resume",
    )
    assert config.rollout.max_tool_calls == 3
    assert config.learner.learning_rate == 2e-5
    assert config.learner.betas == (0.9, 0.95)
    assert {name: chosen(source) for name, source in config.data.evaluation.items()} == {
        "heldout": {"name": "file", "path": "heldout.jsonl"}
    }
    assert chosen(config.rollout.tools["python"])["workers"] == 4
    assert config.run.resume is True
    assert config.run.steps == 3


def test_a_text_that_looks_like_a_number_stays_a_text(config_file: Path) -> None:
    config = parse(config_file, "--run.note", "1.50", "--run.directory", "2026-01-01", "--critic.path", "7")
    assert (config.run.note, config.run.directory, config.critic.path) == ("1.50", Path("2026-01-01"), "7")
    assert parse(config_file, "--run.note", '"1.50"').run.note == "1.50"


@pytest.mark.parametrize(
    ("options", "old", "reference", "anyway"),
    [
        ([], False, False, False),
        (["--algorithm.epochs", "2"], True, False, False),
        (["--algorithm.mini_batches", "2"], True, False, False),
        (["--algorithm.kl.coefficient", "0.1"], False, True, True),
        (["--algorithm.kl.coefficient", "0.1", "--algorithm.kl.target", "reward"], True, True, False),
        (["--algorithm.kl.target", "reward"], False, False, False),
        (["--selection.mask.improbable.above", "5"], False, True, False),
        (["--algorithm.entropy_bonus", "0.1"], False, False, True),
        (["--algorithm.policy_loss", "dppo"], False, False, False),
        (["--algorithm.policy_loss", "dppo", "--algorithm.policy_loss.penalty", "1e-3"], False, False, True),
        (["--algorithm.policy_loss", "kl_cov"], True, False, True),
        (["--algorithm.policy_loss", "kl_cov", "--algorithm.policy_loss.penalty", "0"], True, False, False),
    ],
)
def test_algorithm_requirements_are_derived(
    config_file: Path, options: list[str], old: bool, reference: bool, anyway: bool
) -> None:
    algorithm = parse(config_file, *options).algorithm
    assert algorithm.needs_old_logprobs == old
    assert algorithm.needs_reference == reference
    assert algorithm.learns_without_advantage == anyway


def test_dumped_tree_reads_back_equal(config_file: Path, tmp_path: Path) -> None:
    config = parse(
        config_file, "--data.evaluation.heldout", "heldout.jsonl", "--algorithm.policy_loss.dual_clip", "3.0"
    )
    again = tmp_path / "again.toml"
    again.write_text(str(config))
    assert load_config(TrainConfig, again) == config


@pytest.mark.parametrize("path", sorted(presets().values()), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_configs_are_valid(path: Path) -> None:
    load_config(TrainConfig, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rollout]\nmax_tool_cals = 1", "rollout.max_tool_cals is unknown; did you mean rollout.max_tool_calls?"),
        ("[checkpoint]\nkeep = 1", "checkpoint.keep is unknown; did you mean checkpoint.keep_last?"),
        ("[rolout]\nmax_tool_calls = 1", "rolout is unknown; did you mean rollout?"),
        ("[rollout]\ntop_p = 2", "rollout.top_p must be less than or equal to 1, got 2"),
        ("[rollout]\ntop_p = nan", "rollout.top_p"),
        ("[rollout]\ntemperature = 0", "greedy samples"),
        ("[learner]\nlr_schedule = 'konstant'", "learner.lr_schedule"),
        ("[learner]\noffload = 'parameters'", "offload = 'parameters' requires zero_stage = 3"),
        ("[learner]\nzero_stage = 0\noffload = 'optimizer'", "offload = 'optimizer' requires zero_stage = 1 or 2 or 3"),
        (
            "[selection.groups.accuracy_outside]\nrange = [5, 80]",
            "selection: groups.accuracy_outside: range must be two fractions between 0 and 1",
        ),
        ("[algorithm]\nestimator = 'distillation'", "'distillation' requires kl.reference or kl.prompt"),
        (
            "[algorithm]\nestimator = 'gdpo'\nkl = { target = 'reward', coefficient = 0.1 }",
            "'gdpo' does not count the KL penalty of kl.target = 'reward'",
        ),
        (
            "[learner]\nzero_stage = 1\noffload = 'while_sampling'",
            "offload = 'while_sampling' requires zero_stage = 2 or 3",
        ),
        (
            "[learner]\nzero_stage = 2\noffload = 'all'",
            "offload = 'all' requires zero_stage = 3",
        ),
        (
            "[rollout.tools.python]\nwall_seconds = 1",
            "rollout.tools.python: wall_seconds must not be shorter than cpu_seconds",
        ),
        ("[algorithm]\naggregation = 'fixed_length'", "algorithm.aggregation.length is missing"),
        (
            "[algorithm.policy_loss]\nname = 'gspo'\ndual_clip = 3.0",
            "algorithm.policy_loss.dual_clip is an option of clipped, and not of the policy loss chosen here",
        ),
        (
            "[algorithm.importance_correction]\nname = 'mis'\nlow = 4.0",
            "algorithm.importance_correction: low = 4 must not be more than high = 3",
        ),
        (
            "[algorithm]\nestimator = 'reinforce++'",
            "algorithm.estimator: no advantage estimator is called 'reinforce++'; did you mean reinforce_plus_plus?",
        ),
        ("[algorithm]\nestimator = 'rloo'\n[rollout]\nsamples_per_prompt = 1", "of at least 2"),
        ("[rollout]\nmax_staleness = 1", "rollout.max_staleness requires algorithm.importance_correction"),
        (
            "[algorithm]\npolicy_loss = 'dppo'\nimportance_correction = 'tis'",
            "algorithm.policy_loss = 'dppo' has its ratio to the engine, which algorithm.importance_correction would",
        ),
        ("[evaluation]\ngreedy = false", "greedy = false requires samples_per_problem of at least 1"),
        ("[data.evaluation]\ntraining = 'a.jsonl'", "evaluation set 'training': choose another name"),
        (
            "[data.evaluation]\nheld = 'a.jsonl'\n'held.greedy' = 'b.jsonl'",
            "evaluation set 'held.greedy': choose another name",
        ),
        ("[learner]\nlearning_rate = true", "learner.learning_rate must be a number, not a boolean, got True"),
        ("[learner]\nbetas = [true, 0.9]", "learner.betas must be a number, not a boolean, got [True, 0.9]"),
        (
            "[evaluation.rollout]\nmax_tool_calls = true",
            "evaluation.rollout must be a number, not a boolean, got {'max_tool_calls': True}",
        ),
        (
            "[evaluation.rollout]\nmax_tool_cals = 1",
            "evaluation.rollout.max_tool_cals is unknown; did you mean evaluation.rollout.max_tool_calls?",
        ),
        ("[evaluation.rollout]\ntop_p = 2", "evaluation.rollout.top_p must be less than or equal to 1, got 2"),
        ("[learner]\nmax_row_tokens = true", "learner.max_row_tokens must be a number, not a boolean, got True"),
        (
            "[rollout.tools.python]\ncpu_seconds = true",
            "rollout.tools.python.cpu_seconds must be a number, not a boolean, got True",
        ),
        ('[data.evaluation]\n"aime/24" = "a.jsonl"', "evaluation set 'aime/24': use letters, digits and . _ + - in"),
        ("[rollout]\nformat = 'zerotr'", "rollout.format: no format is called 'zerotr'; did you mean zerotir?"),
        (
            "[rollout.format]\nname = 'zerotir'\nmax_observation_characters = 9",
            "rollout.format.max_observation_characters is an option of torl, retool, artist, hermes, llama3, mistral, "
            "deepseek, kimi, harmony, and not of the format chosen here",
        ),
        (
            "[rollout.format]\nerors = 'hidden'",
            "rollout.format.erors is unknown; did you mean rollout.format.error_style?",
        ),
        ("[rollout.format]\nerror_style = 'hiden'", "rollout.format.error_style must be 'last_line'"),
        (
            "[rollout.format]\nname = 'torl.recipes.torl:ToRLFormat'\nerors = 'hidden'",
            "rollout.format.erors is unknown; did you mean rollout.format.error_style?",
        ),
        (
            "[rollout.tools.python]\nworkrs = 3",
            "rollout.tools.python.workrs is unknown; did you mean rollout.tools.python.workers?",
        ),
        (
            "[rollout.tools.sarch]\npath = 'x'",
            "rollout.tools.sarch: no tool is called 'sarch'; did you mean search?",
        ),
        (
            "[rollout.tools.search]\nname = 'no_such_module:Search'",
            "rollout.tools.search: no_such_module cannot be imported",
        ),
        ("[engine]\ndtpe = 'float32'", "engine.dtpe is unknown; did you mean engine.dtype?"),
        (
            "[algorithm.kl]\ncoeficient = 1.0",
            "algorithm.kl.coeficient is unknown; did you mean algorithm.kl.coefficient?",
        ),
        (
            "[selection.groups.hard]\nname = 'accuracy_outside'\nrange = [0.8, 0.2]",
            "groups.hard: range must be two fractions between 0 and 1, the lower first",
        ),
        (
            "[selection]\nmax_rounds = 4",
            "max_rounds = 4 requires a filter in groups, such as zero_variance = {}; without one no group is dropped",
        ),
        (
            "[algorithm]\nestimator = 'gtpo'\n[selection]\ngroups.zero_variance = {}",
            "selection.groups.zero_variance drops groups of equal rewards, from which estimator 'gtpo' learns, "
            "too: set it to false",
        ),
        (
            "[algorithm.estimator]\nname = 'adatir'\nmax_calls = 4\n"
            "[selection]\nmax_rounds = 2\ngroups.equal.name = 'zero_variance'",
            "selection.groups.equal drops groups of equal rewards, from which estimator 'adatir' learns, too",
        ),
        (
            "[reward.parts]\nlength = { name = 'overlong', buffer = 3072 }",
            "reward: parts.length: buffer = 3072 must be below rollout.max_response_tokens (3072)",
        ),
        (
            "[reward.parts]\nanswer = { name = 'math', corect = 2.0 }",
            "reward.parts.answer.corect is unknown; did you mean reward.parts.answer.correct?",
        ),
        ("[selection.mask]\nrepetitive = {}", "selection.mask.repetitive.above is missing"),
        (
            "[selection.mask.void_trun]",
            "selection.mask.void_trun: no mask is called 'void_trun'; did you mean void_turn?",
        ),
        (
            "[rollout.format]\nname = 'search_r1'",
            "rollout.tools.python cannot be called in the format 'search_r1': it calls search alone",
        ),
        ("rollout = 3", "rollout"),
        ("[rollout", "not valid TOML"),
        ("x = " + "[" * 5_000, "not valid TOML: nested too deeply"),
        ("run:\n  steps: 5\n", "it looks like YAML"),
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
        (["stray"], "stray: no such file, and no preset of that name"),
        (["--data.evaluation.heldout"], "needs a value"),
        (["--data.evaluation.heldout", "--run.steps", "3"], "--data.evaluation.heldout needs a value"),
        (["--rollout.format", "zerotr"], "--rollout.format: no format is called 'zerotr'; did you mean zerotir?"),
        (["--rollout.format.name", "zerotr"], "--rollout.format.name: no format is called 'zerotr'"),
        (["--rollout.format.erors", "hidden"], "unknown; did you mean --rollout.format.error_style?"),
        (
            ["--algorithm.estimator.discount", "0.9"],
            "--algorithm.estimator.discount is an option of reinforce_plus_plus",
        ),
        (["--rollout.tools.python.workrs", "3"], "unknown; did you mean --rollout.tools.python.workers?"),
        (
            ["--data.template", "xyz"],
            "no prompt template is called 'xyz'; there are: torl, zerotir, orz, search_r1",
        ),
        (["--run.seed", "99999999999999999999999"], "--run.seed must be less than 2147483648"),
        (["--learner.betas", "[2, 0.9]"], "--learner.betas[0] must be less than 1, got 2"),
        (["--learner.betas", "[0.9, 1.0]"], "--learner.betas[1] must be less than 1, got 1.0"),
        (["--learning_rate", "1"], "--learning_rate is unknown; did you mean --learner.learning_rate?"),
        (["--learner.learning_rate", "-inf"], "--learner.learning_rate must be a finite number, got -inf"),
        (["--cluster.kind", "json:loads"], "--cluster.kind: json:loads is a part of Python, not a cluster"),
        (["--cluster.kind", "no.such:Thing"], "--cluster.kind: no.such cannot be imported"),
        (["--cluster.kind", "slurm"], "--cluster.kind: no cluster is called 'slurm'; there are: local, ray"),
        (["--reward.parts.x.name", "os:system"], "os:system is a part of Python, not a reward part"),
        (["--reward.parts.x.name", "builtins:len"], "builtins:len is a part of Python, not a reward part"),
        (["--data.template.name", "builtins:print"], "builtins:print is a part of Python, not a prompt template"),
        (
            ["--data.train.name", "subprocess:getoutput", "--data.train.cmd", "id"],
            "--data.train.name: subprocess:getoutput is a part of Python, not a problem source",
        ),
        (
            ["--data.train.name", "torl.run.records.files:training_files"],
            "torl.run.records.files:training_files returns list[Path]; Iterable[Problem] is wanted",
        ),
        (
            ["--learner.ranks", "3", "--learner.sequence_parallel", "2"],
            "sequence_parallel = 2 does not divide ranks = 3",
        ),
        (["--algorithm.mini_batches", "100000"], "algorithm.mini_batches = 100000 is more than the"),
        (["--rollout.samples_per_prompt", "1"], "rollout.samples_per_prompt = 1 learns nothing; set at least 2"),
        (["--rollout.temperature", "[[0, 1], [5, 0]]"], "rollout.temperature must be above 0 for training"),
        (["--learner.betas", "[0.9]"], "--learner.betas[1] is missing"),
        (["--algorithm.aggregation", "fixed_length"], "--algorithm.aggregation.length is missing"),
        (["--algorithm.aggregation.name", "fixed_length"], "--algorithm.aggregation.length is missing"),
        (["--data.evaluation", "{a = 3}"], "--data.evaluation.a: select the problem source with a name"),
        (
            ["--reward.parts", "{answer = {name = 'math', weight = 'x'}}"],
            "--reward.parts.answer.weight must be a valid number, got 'x'",
        ),
        (["--reward.parts.other.weight", "2"], "--reward.parts.other.weight: no reward part is called 'other'"),
        (
            ["--selection.groups.accuracy_outside", "{range = [0.9, 0.1]}"],
            "--selection.groups.accuracy_outside: groups.accuracy_outside: range must be two",
        ),
        (["--rollout.max_staleness", "1"], "--rollout.max_staleness: rollout.max_staleness requires"),
        (["--run.steps", "true"], "--run.steps must be a number, not a boolean, got True"),
        (["--run.directory", "~no-such-user/runs"], "--run.directory: Could not determine home directory"),
        (["--run.directory", ""], "--run.directory: an empty path is the current directory"),
        (["--placement.gpus", "[0, -1]"], "--placement.gpus[1] must be greater than or equal to 0"),
    ],
)
def test_mistakes_on_the_command_line_are_named(config_file: Path, options: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(config_file, *options)
    assert message in str(error.value)


def test_home_directory_is_expanded_in_output_paths(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert parse(config_file, "--run.directory=~/runs/mine").run.directory == Path("/home/somebody/runs/mine")


def test_byte_order_mark_is_ignored(config_file: Path) -> None:
    config_file.write_text(MINIMAL, encoding="utf-8-sig")
    assert parse(config_file).run.steps == 3


def test_missing_file_and_missing_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse(tmp_path / "absent.toml")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    with pytest.raises(ConfigError, match="run is missing"):
        parse(empty)


# --- choices ------------------------------------------------------------------------------------------------------


def test_name_as_text_selects_the_default_options(config_file: Path) -> None:
    config_file.write_text(f"{MINIMAL}[rollout.format]\nname = 'torl'\nmax_observation_characters = 9\n")
    assert parse(config_file).rollout.format.make().options == ToRLOptions(max_observation_characters=9)  # type: ignore[attr-defined]
    config = parse(config_file, "--rollout.format", "zerotir")
    assert chosen(config.rollout.format) == {
        "name": "zerotir",
        "error_style": "traceback",
        "fences": "lines",
        "max_observation_tokens": 256,
    }


def test_another_name_drops_the_options_of_the_file(config_file: Path) -> None:
    config_file.write_text(f"{MINIMAL}[rollout.format]\nname = 'zerotir'\nmax_observation_tokens = 9\n")
    assert isinstance(parse(config_file).rollout.format.make(), ZeroTIRFormat)
    config = parse(config_file, "--rollout.format.error_style", "tagged", "--rollout.format.name", "torl")
    assert isinstance(config.rollout.format.make(), ToRLFormat)
    assert chosen(config.rollout.format) == {
        "name": "torl",
        "error_style": "tagged",
        "fences": "lines",
        "max_observation_characters": 256,
    }
    same = parse(config_file, "--rollout.format.name", "zerotir")
    assert chosen(same.rollout.format)["max_observation_tokens"] == 9


def test_name_is_chosen_before_its_options_in_any_order(config_file: Path) -> None:
    config_file.write_text(f"{MINIMAL}[rollout.format]\nname = 'zerotir'\nmax_observation_tokens = 9\n")
    options = {"rollout.format.error_style": "tagged", "rollout.format.name": "torl"}
    for overrides in (options, dict(reversed(options.items()))):
        config = load_config(TrainConfig, config_file, overrides)
        assert chosen(config.rollout.format) == {
            "name": "torl",
            "error_style": "tagged",
            "fences": "lines",
            "max_observation_characters": 256,
        }


def test_option_joins_choice_by_name_in_file(config_file: Path) -> None:
    config_file.write_text(f"{MINIMAL}[rollout]\nformat = 'zerotir'\n")
    assert chosen(parse(config_file, "--rollout.format.max_observation_tokens", "9").rollout.format) == {
        "name": "zerotir",
        "error_style": "traceback",
        "fences": "lines",
        "max_observation_tokens": 9,
    }


def test_shorthand_key_keeps_the_options_of_the_file(config_file: Path) -> None:
    config_file.write_text(f"{MINIMAL}[rollout.tools.python]\nworkers = 9\n")
    tool = parse(config_file, "--rollout.tools.python.name", "python").rollout.tools["python"]
    assert (tool.name, chosen(tool)["workers"]) == ("python", 9)


OTHER = "torl.recipes.zerotir:ZeroTIRFormat"
OTHER_ENGINE = "torl.components.engine:VllmEngine"
OTHER_TOOL = "torl.components.tools:PythonTool"
STRANGE_SOURCE = "[data.train]\nname = 'torl.recipes.torl:ToRLFormat'\nmax_observation_characters = 9"


@pytest.mark.parametrize(
    ("place", "section", "options", "name"),
    [
        ("rollout.format", "[rollout.format]\nmax_observation_characters = 9", [".name", OTHER], OTHER),
        ("engine", "[engine]\nmax_sequences = 9", [".name", OTHER_ENGINE], OTHER_ENGINE),
        ("rollout.tools.python", "[rollout.tools.python]\nworkers = 9", [".name", OTHER_TOOL], OTHER_TOOL),
        ("data.train", STRANGE_SOURCE, ["", "other.jsonl"], "file"),
        ("data.train", STRANGE_SOURCE, [".name", "file", ".path", "other.jsonl"], "file"),
    ],
)
def test_options_of_a_replaced_choice_are_dropped(
    config_file: Path, place: str, section: str, options: list[str], name: str
) -> None:
    """Also those of the default, which a section without a name is one of."""
    text = MINIMAL.replace('[data]\ntrain = "train.jsonl"\n', "") if place == "data.train" else MINIMAL
    config_file.write_text(text + section)
    words = [f"--{place}{word}" if index % 2 == 0 else word for index, word in enumerate(options)]
    tree: dict[str, Any] = parse(config_file, *words).model_dump(mode="json")
    for part in place.split("."):
        tree = tree[part]
    assert tree["name"] == name
    assert 9 not in tree.values()


def test_custom_options_are_read_from_command_line(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebodys_search.py").write_text(
        "import torl\n\n\nclass Search(torl.Tool):\n    def __init__(self, path: str, top_k: int = 3):\n"
        "        self.asked = path, top_k\n\n    async def call(self, arguments): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ("--rollout.tools.search.name", "somebodys_search:Search", "--rollout.tools.search.path", "index")
    config = parse(config_file, *own, "--rollout.tools.search.top_k=7", "--rollout.format.name", "hermes")
    assert config.rollout.tools["search"].make().asked == ("index", 7)  # type: ignore[attr-defined]
    for wrong, message in (
        (["--rollout.tools.search.topk", "7"], "is unknown; did you mean --rollout.tools.search.top_k?"),
        (["--rollout.tools.search.top_k", "x"], "--rollout.tools.search.top_k must be a valid integer"),
    ):
        with pytest.raises(ConfigError) as error:
            parse(config_file, *own, *wrong)
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--reward.parts.failed_code.weight", "0.5"], ["answer", "failed_code"]),
        (["--reward.name", "rubric", "--reward.parts.failed_code.weight", "0.5"], ["answer", "failed_code"]),
        (["--reward.parts.answer", "false", "--reward.parts.failed_code.weight", "0.5"], ["failed_code"]),
        (["--reward.parts", "{failed_code = {weight = 0.5}}"], ["failed_code"]),
    ],
)
def test_override_of_one_part_keeps_the_default_parts(config_file: Path, options: list[str], parts: list[str]) -> None:
    found = parse(config_file, *options).reward.options
    assert isinstance(found, RubricOptions)
    assert list(found.parts) == parts
    assert list(RubricOptions().parts) == ["answer"]  # the default itself stays as it is


def test_override_of_one_key_keeps_the_default_table(config_file: Path) -> None:
    config = parse(config_file, "--run.trackers.other.name", "tensorboard", "--rollout.tools.python", "false")
    assert list(config.run.trackers) == ["tensorboard", "other"]
    assert list(config.rollout.tools) == []
    config_file.write_text(MINIMAL + "[reward.parts.failed_code]\n")
    only = parse(config_file, "--reward.parts.failed_code.weight", "0.5").reward.options
    assert isinstance(only, RubricOptions)
    assert list(only.parts) == ["failed_code"]  # a table in a file replaces the default


def test_tools_are_named_by_their_keys(config_file: Path) -> None:
    assert list(parse(config_file).rollout.tools) == ["python"]
    config_file.write_text(
        f"{MINIMAL}[rollout.tools.python]\nworkers = 3\n[rollout.tools.other]\nname = 'python'\n"
        "[rollout.format]\nname = 'hermes'\n"
    )
    tools = parse(config_file).rollout.tools
    assert [tool.target for tool in tools.values()] == [PythonTool, PythonTool]
    assert [chosen(tool).get("workers") for tool in tools.values()] == [3, None]


@pytest.mark.parametrize("loss", ["dppo", "vespo"])
def test_losses_with_a_ratio_to_the_engine_need_no_correction(config_file: Path, loss: str) -> None:
    config_file.write_text(f"{MINIMAL}[rollout]\nmax_staleness = 2\n[algorithm]\npolicy_loss = '{loss}'\n")
    assert parse(config_file).rollout.max_staleness == 2


def test_calls_with_values_instead_of_texts(config_file: Path) -> None:
    config = load_config(
        TrainConfig,
        config_file,
        {
            "run.steps": 7,
            "run.resume": True,
            "learner.betas": [0.9, 0.95],
            "run.directory": Path("/x y"),
            "run.note": "7",
        },
    )
    assert (config.run.steps, config.run.resume, config.learner.betas) == (7, True, (0.9, 0.95))
    assert config.run.directory == Path("/x y")


# --- which file ---------------------------------------------------------------------------------------------------


def test_presets_come_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in presets().items():
        assert find_config(name) == file
    assert {"demo", "torl_7b", "ztrl_ppo_7b", "dapo", "search_r1"} < presets().keys()
    config = parse_command_line(TrainConfig, "torl.train", "Train.", ["torl_7b", "--run.steps", "3"])
    assert (config.run.steps, config.rollout.samples_per_prompt) == (3, 16)
    with pytest.raises(ConfigError, match="torl_8b: no such file, and no preset of that name; did you mean torl_7b"):
        find_config("torl_8b")
    with pytest.raises(ConfigError, match=r"no preset of that name; the presets are: artist, dapo, demo, .*"):
        find_config("x")


def test_a_run_is_named_by_its_directory(config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    config = parse(config_file)
    (run / "config.toml").write_text(str(config))
    assert find_config(run) == run / "config.toml"
    assert parse(run) == config
    with pytest.raises(ConfigError, match=r"runs/config\.toml: cannot be read"):
        parse(run.parent)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # a directory without a run hides no preset
    assert find_config("demo") == presets()["demo"]
    (tmp_path / "demo" / "config.toml").write_text(str(config))
    assert find_config("demo") == Path("demo/config.toml")


def test_a_file_is_taken_before_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text(MINIMAL)
    assert find_config("demo") == Path("demo")
    assert find_config("absent.toml") == Path("absent.toml")
    assert find_config("folder/absent") == Path("folder/absent")


# --- commands that learn nothing ----------------------------------------------------------------------------------

OWN: dict[type[ModelRunConfig], tuple[str, ...]] = {
    SampleConfig: ("--sample.problems", "p.jsonl", "--sample.output", "o.jsonl"),
    EvaluateConfig: ("--data.evaluation.problems", "p.jsonl"),
}


@pytest.mark.parametrize("config_class", OWN)
def test_sections_of_training_are_passed_over(config_file: Path, config_class: type[ModelRunConfig]) -> None:
    config_file.write_text(
        f"{MINIMAL}max_prompt_tokens = 77\n[learner]\nlearning_rate = 3.0\n[critic]\npath = 'x'\n"
        "[algorithm]\nestimator = 'ppo'\n[selection]\nmax_rounds = 3\n[checkpoint]\nkeep_last = 1\n"
        "[ablation]\nshuffle = 'rewards'\n[rollout]\nmax_tool_calls = 5\n"
    )
    config = parse_command_line(config_class, "torl", "Play.", [str(config_file), *OWN[config_class]])
    assert (config.data.max_prompt_tokens, config.rollout.max_tool_calls) == (77, 5)
    assert not {"run", "learner", "algorithm"} & config.model_dump().keys()


@pytest.mark.parametrize("config_class", OWN)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rolout]\nmax_tool_calls = 1", "rolout is unknown; did you mean rollout?"),
        ("[rollout]\nmax_tool_cals = 1", "rollout.max_tool_cals is unknown; did you mean rollout.max_tool_calls?"),
        ("[lerner]\nranks = 1", "lerner is unknown"),
    ],
)
def test_unknown_sections_are_not_dropped(
    config_file: Path, config_class: type[ModelRunConfig], text: str, message: str
) -> None:
    config_file.write_text(MINIMAL + text)
    with pytest.raises(ConfigError) as error:
        parse_command_line(config_class, "torl", "Play.", [str(config_file), *OWN[config_class]])
    assert message in str(error.value)


def test_command_requires_its_own_section(config_file: Path) -> None:
    with pytest.raises(ConfigError, match="sample is missing"):
        parse_command_line(SampleConfig, "torl.sample", "Sample.", [str(config_file)])
    with pytest.raises(ConfigError, match=r"sample\.problems is missing"):
        parse_command_line(SampleConfig, "torl.sample", "Sample.", [str(config_file), "--sample.output", "out"])
    with pytest.raises(ConfigError, match=r"--learner\.ranks is unknown"):
        parse_command_line(
            SampleConfig, "torl", "Play.", [str(config_file), *OWN[SampleConfig], "--learner.ranks", "2"]
        )
    config = parse_command_line(
        EvaluateConfig,
        "torl.evaluate",
        "Evaluate.",
        [
            str(config_file),
            *OWN[EvaluateConfig],
            "--evaluation.samples_per_problem",
            "4",
            "--evaluation.rollout.max_tool_calls",
            "0",
        ],
    )
    assert (config.evaluation.samples_per_problem, config.evaluation.rollout) == (4, {"max_tool_calls": 0})
    assert chosen(config.data.evaluation["problems"]) == {"name": "file", "path": "p.jsonl"}


# --- help ---------------------------------------------------------------------------------------------------------


def options_in(config_class: type[ModelRunConfig]) -> Iterator[tuple[str, Any]]:
    """Every option that `--help` has to show, with its field: of sections, and of all that can be chosen, once."""
    shown: set[int] = set()
    for name, info in fields_of(config_class):
        yield name, info
        choice = choice_of_field(info)
        table = choice_at(config_class, [*name.split("."), "*"])
        if choice is not None and id(choice.registry) not in shown:
            shown.add(id(choice.registry))
            for options in choice.all_options().values():
                yield from ((f"{name}.{option}", each) for option, each in options.items())
        elif table is not None and table.default is None:
            of_key = table.all_options()
            for key, options in of_key.items():
                for option, each in options.items():
                    is_shared = sum(option in others for others in of_key.values()) > 1
                    yield f"{name}.{'*' if is_shared else key}.{option}", each


@pytest.mark.parametrize("config_class", [TrainConfig, *OWN])
def test_every_option_is_documented(config_class: type[ModelRunConfig]) -> None:
    options = dict(options_in(config_class))
    assert {"rollout.format.error_style", "rollout.tools.python.workers", "engine.max_sequences"} <= options.keys()
    assert [name for name, info in options.items() if not info.description] == []


@pytest.mark.parametrize("config_class", [TrainConfig, *OWN])
def test_no_setting_with_a_default_can_be_unset(config_class: type[ModelRunConfig]) -> None:
    """TOML has no null: an unset value would be left out of config.toml, and read back as the default."""
    optional = [(name, info) for name, info in options_in(config_class) if type(None) in get_args(info.annotation)]
    assert len(optional) > 20
    assert [name for name, info in optional if info.get_default(call_default_factory=True) is not None] == []


@pytest.mark.parametrize("config_class", [TrainConfig, *OWN])
def test_common_settings_are_settings(config_class: type[ModelRunConfig]) -> None:
    names = {name for name, _ in fields_of(config_class)} | {name for name, _ in options_in(config_class)}
    assert set(config_class.common_settings) <= names
    assert len(config_class.common_settings) <= 35


def test_full_help_shows_every_option() -> None:
    help_text = _help("train", "all")
    words = " ".join(help_text.split())
    for name, info in options_in(TrainConfig):
        assert f"--{name}" in help_text
        assert " ".join((info.description or "?").split())[:30] in words


def test_help_first_shows_the_common_settings() -> None:
    help_text = _help("train")
    for name in TrainConfig.common_settings:
        assert f"--{name} " in help_text
    assert len(re.findall(r"^  --[a-z]+", help_text, flags=re.MULTILINE)) == len(TrainConfig.common_settings) + 2
    assert "--learner.betas" not in help_text
    assert "torl train --help all" in " ".join(help_text.split())


def test_help_of_a_section_shows_that_section() -> None:
    help_text = _help("train", "critic")
    assert set(re.findall(r"^  --([a-z]+)\.", help_text, flags=re.MULTILINE)) == {"critic"}
    assert "--rollout.format.error_style" in _help("train", "rollout.format")
    evaluation, topic = _help("train", "evaluation"), _help("train", "evaluation.reward")
    assert "It has the options of `reward`." in " ".join(evaluation.split())
    assert ("--evaluation.reward.parts" in evaluation, "--evaluation.reward.parts" in topic) == (False, True)
    with pytest.raises(ConfigError, match=r"--help critc: no such section; did you mean critic\?"):
        parse_command_line(TrainConfig, "torl train", "Train.", ["--help", "critc"])


def test_help_tells_choices_apart() -> None:
    words = " ".join(_help("train", "all").split())
    formats = (
        "torl, zerotir, tora, mathcoder, search_r1, retool, artist, hermes, llama3, mistral, deepseek, kimi, harmony"
    )
    assert f"One of {formats}, or package.module:Name for a custom one. (default: torl)" in words
    assert "--rollout.format.max_observation_tokens INT [zerotir] " in words
    assert "[tis] " in words
    assert "--algorithm.aggregation.length INT [fixed_length" in words
    assert "replace those that it inherits. (default: unset)" in words  # of a table that is empty
    assert "--data.train PATH Problems to train on: a file (.jsonl, .json, .parquet, .csv or .arrow), a public" in words
    assert "(default: required for judge; unset for turn_scores)" in words


def test_help_names_types_for_people() -> None:
    help_text = _help("train", "all")
    assert not re.search(r"ELLIPSIS|\bANY\b|NoneType|\(default: None|Of [a-z_]+: |None of ", help_text)
    assert "--learner.betas [NUMBER, NUMBER]" in help_text
    assert "--rollout.stop [TEXT, ...]" in help_text
    assert "--placement.gpus all|INT|[INT, ...]" in help_text
    assert "--run.resume [true|false]" in help_text
    assert "--engine.arguments TABLE" in help_text


@pytest.mark.parametrize(("command", "own"), [("sample", "--sample.problems"), ("evaluate", "--suite SET")])
def test_help_of_commands_that_do_not_train(command: str, own: str) -> None:
    help_text = _help(command, "all")
    assert "--rollout.format.error_style" in help_text
    assert "--learner" not in help_text
    assert own in help_text


# Numbers of modules: an import that is not needed to show help counts on every machine, where seconds do not.
@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("", 170),  # with the standard library's reader of package metadata, which finds the commands
        ("--help", 170),
        ("presets", 620),
        ("train --help", 620),
        ("sample --help", 620),
        ("evaluate --help", 900),
        ("verify --help", 900),
    ],
)
def test_help_imports_few_modules_and_no_giant(words: str, limit: int) -> None:
    program = (
        "import contextlib, io, sys\n"
        "from torl.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({words.split()!r})\n"
        f"print(sorted(set({GIANTS}) & set(sys.modules)), 'pydantic' in sys.modules, len(sys.modules))"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    giants, pydantic, count = completed.stdout.rsplit(maxsplit=2)
    assert giants == "[]"
    assert pydantic == str(limit > 200)
    assert int(count) < limit


def _help(command: str, *topic: str) -> str:
    """The output of `torl COMMAND --help [TOPIC]`."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        main([command, "--help", *topic])
    return output.getvalue()


# --- several configurations -----------------------------------------------------------------------------------------


def test_a_file_extends_presets_and_files(tmp_path: Path) -> None:
    (tmp_path / "shorter.toml").write_text("[run]\nsteps = 3\nnote = 'short'\n[rollout]\nmax_tool_calls = 7\n")
    mine = tmp_path / "mine.toml"
    mine.write_text("extends = ['demo', 'shorter.toml']\n[run]\nnote = 'mine'\n")
    config, demo = load_config(TrainConfig, mine), load_config(TrainConfig, find_config("demo"))
    assert (config.run.steps, config.run.note, config.rollout.max_tool_calls) == (3, "mine", 7)
    assert config.learner == demo.learner
    more = tmp_path / "more.toml"
    more.write_text("extends = 'mine.toml'\n[run]\nsteps = 4\n")
    assert load_config(TrainConfig, more).run.steps == 4
    assert load_config(TrainConfig, [find_config("demo"), tmp_path / "shorter.toml"]).run.steps == 3


def test_extending_keeps_or_drops_the_options_of_a_choice(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(
        f"{MINIMAL}[rollout.format]\nname = 'torl'\nfences = 'published'\n[rollout.tools.python]\nworkers = 9\n"
    )

    def extended(text: str) -> TrainConfig:
        top = tmp_path / "top.toml"
        top.write_text(f"extends = 'base.toml'\n{text}")
        return load_config(TrainConfig, top)

    same = extended("[rollout.format]\nmax_observation_characters = 9\n").rollout.format
    assert (chosen(same)["fences"], chosen(same)["max_observation_characters"]) == ("published", 9)
    other = extended("[rollout]\nformat = 'hermes'\n").rollout.format
    assert (other.name, "fences" in chosen(other)) == ("hermes", False)
    assert chosen(extended("[rollout.tools.python]\ncpu_seconds = 3.0\n").rollout.tools["python"])["workers"] == 9
    chat = "[rollout]\nformat = 'hermes'\n"  # a format that can call any tool
    second = extended(f"{chat}[rollout.tools.second]\nname = 'python'\n").rollout.tools
    assert list(second) == ["python", "second"]
    assert list(extended(f"{chat}[rollout.tools]\npython = false\nsecond = 'python'\n").rollout.tools) == ["second"]


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("", {}, ["heldout"]),
        ("[data]\n", {}, ["heldout"]),
        ("[data]\nevaluation = {}\n", {}, []),
        ("[data]\nevaluation = { mine = 'mine.jsonl' }\n", {}, ["mine"]),
        ("[data.evaluation]\nmine = 'mine.jsonl'\n", {}, ["mine"]),
        ("[data.evaluation.mine]\npath = 'mine.jsonl'\nname = 'file'\n", {}, ["mine"]),
        ("[data.evaluation]\nmine = 'mine.jsonl'\n", {"data.evaluation.more": "more.jsonl"}, ["mine", "more"]),
        ("", {"data.evaluation.more": "more.jsonl"}, ["heldout", "more"]),
        ("", {"data.evaluation": {"more": "more.jsonl"}}, ["more"]),
        ("[data.evaluation]\nmine = 'mine.jsonl'\n", {"data.evaluation": "{}"}, []),
    ],
)
def test_evaluation_sets_of_a_file_replace_inherited_ones(
    text: str, overrides: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f"extends = 'demo'\n{text}")
    assert list(load_config(TrainConfig, mine, overrides).data.evaluation) == expected


def test_the_configuration_for_own_data_evaluates_on_own_data(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-data.md").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    assert list(load_config(TrainConfig, mine).data.evaluation) == ["heldout"]


def test_mistakes_in_extended_files_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(MINIMAL + "[rollout]\ntop_q = 1\n")
    mine = tmp_path / "mine.toml"
    mine.write_text("extends = 'base.toml'\n[run]\nnote = ''\n")
    with pytest.raises(ConfigError, match=r"base\.toml: rollout\.top_q is unknown; did you mean rollout\.top_p\?"):
        load_config(TrainConfig, mine)
    mine.write_text("extends = 'mine.toml'\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: extends itself"):
        load_config(TrainConfig, mine)
    mine.write_text("extends = 'other.toml'\n")
    (tmp_path / "other.toml").write_text("extends = 'mine.toml'\n")
    with pytest.raises(ConfigError, match=r"itself \(\S+mine\.toml -> \S+other\.toml -> \S+mine\.toml\)"):
        load_config(TrainConfig, mine)
    mine.write_text("extends = 'missing.toml'\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: extends missing\.toml: cannot be read"):
        load_config(TrainConfig, mine)
    mine.write_text("extends = 'demoo'\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: extends demoo: .* no preset of that name; did you mean demo"):
        load_config(TrainConfig, mine)
    mine.write_text("extends = 3\n")
    with pytest.raises(ConfigError, match="extends = 3 must be a preset, a file, or a list of them"):
        load_config(TrainConfig, mine)


def test_module_that_cannot_be_imported_is_one_message(config_file: Path) -> None:
    config_file.write_text(
        f'{MINIMAL}[rollout]\nformat = "absent:Form"\n[reward.parts]\nanswer = "absent:answer"\n'
        '[algorithm]\nestimator = "absent:median"\npolicy_loss = "absent:gated"\n'
    )
    with pytest.raises(ConfigError) as error:
        load_config(TrainConfig, config_file)
    places = "rollout.format, reward.parts.answer, algorithm.estimator and 1 more"
    reason = "absent cannot be imported: ModuleNotFoundError: No module named 'absent'"
    assert str(error.value).startswith(f"{config_file}: {places}: {reason}; start torl in the directory that holds ")


def test_torl_finds_modules_in_the_current_directory(config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def products(count: int = 3):\n    return []\n")
    config_file.write_text(MINIMAL.replace("train.jsonl", "beside:products"))
    program = "import sys; sys.path.remove(''); from torl.__main__ import main; main(['train', 'run.toml', '--show'])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert 'name = "beside:products"\ncount = 3\n' in shown.stdout


def test_later_configurations_on_the_command_line_win(config_file: Path, tmp_path: Path) -> None:
    top = tmp_path / "top.toml"
    top.write_text("[run]\nsteps = 5\n[rollout]\nmax_tool_calls = 2\n")
    arguments = [str(config_file), str(top), "--run.steps", "9"]
    config = parse_command_line(TrainConfig, "torl train", "Train.", arguments)
    assert (config.run.steps, config.rollout.max_tool_calls, config.model.path) == (9, 2, "model")


def test_show_prints_the_resolved_configuration(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(config_file, "--run.steps", "9", "--show")
    assert end.value.code == 0
    again = tmp_path / "again.toml"
    again.write_text(capsys.readouterr().out)
    assert load_config(TrainConfig, again) == parse(config_file, "--run.steps", "9")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("run.stepz", "did you mean --run.steps?"),
        ("rewad.brief", "did you mean --reward.brief?"),
        ("rollout.tempo", "`torl train --help rollout` lists the settings of this section"),
        ("reward.timeout", "did you mean --reward.grader_timeout_seconds?"),
        ("rollout.max_row_tokens", "did you mean --learner.max_row_tokens?"),
        ("lerner.learning_rate", "did you mean --learner.learning_rate?"),
    ],
)
def test_unknown_options_suggest_the_nearest_key(config_file: Path, name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(config_file, f"--{name}", "3")
    assert f"--{name} is unknown; {nearest}" in str(error.value) or "reward." in name


def test_a_place_is_a_problem_source(config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_problems.py").write_text("def products():\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert parse(config_file, "--data.train", "my_problems:products").data.train.name == "my_problems:products"
    for path in ("torl:demo/problems/train.jsonl", "file.jsonl", "C:/x.jsonl"):
        assert chosen(parse(config_file, "--data.train", path).data.train) == {"name": "file", "path": path}


@pytest.mark.parametrize(
    ("algorithm", "warned"),
    [
        ({"policy_loss": "gspo"}, "is 'token', but gspo is published with 'sequence' or 'fixed_length'"),
        ({"policy_loss": "gspo", "aggregation": "sequence"}, None),
        ({"policy_loss": "gspo", "aggregation": {"name": "fixed_length", "length": 1}}, None),  # LUSPO
        ({"policy_loss": "gspo", "aggregation": "token"}, "is 'token', but gspo is published with 'sequence' or "),
        (
            {"policy_loss": "sapo", "aggregation": {"name": "fixed_length", "length": 1}},
            "is 'fixed_length', but sapo is ",
        ),
        (
            {"estimator": "dr_grpo", "aggregation": "sequence"},
            "is 'sequence', but dr_grpo is published with 'fixed_len",
        ),
        (
            {"estimator": "dr_grpo", "policy_loss": "sapo"},
            "is 'token', but dr_grpo is published with 'fixed_length', and sapo is published with 'sequence'",
        ),
        ({"estimator": "dr_grpo", "policy_loss": "gspo", "aggregation": {"name": "fixed_length", "length": 1}}, None),
        ({}, None),
    ],
)
def test_a_method_with_another_aggregation_than_published_has_a_warning(
    algorithm: dict[str, object], warned: str | None
) -> None:
    found = AlgorithmConfig.model_validate(algorithm).unpublished_aggregation
    if warned is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(f"algorithm.aggregation {warned}")


def test_a_loss_that_replaces_that_of_a_preset_has_the_warning() -> None:
    """The preset sets the aggregation of its own loss."""
    preset = find_config("torl_7b")
    assert load_config(TrainConfig, preset).algorithm.unpublished_aggregation is None
    found = load_config(TrainConfig, preset, {"algorithm.policy_loss": "gspo"}).algorithm.unpublished_aggregation
    assert found == "algorithm.aggregation is 'token', but gspo is published with 'sequence' or 'fixed_length'"
