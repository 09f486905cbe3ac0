"""The run of another user: no command that reads it runs what its files name, and none calls that checked."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import torl
import torl_lab
from builders import scored, trajectory
from torl.__main__ import OWN
from torl.base.errors import DataError, NotTrustedError
from torl.base.options import is_of_recipe, load_object
from torl.base.paths import resolve_path
from torl.base.plugins import COMMANDS, load_plugin, plugins
from torl.base.trust import NOT_TRUSTED, NotImported, reading
from torl.commands.command import Command, Files
from torl.run.config import TrainConfig
from torl.run.config.fields import choice_at, fields_of
from torl.run.config.loading import find_config, load_config
from torl.run.records.receipt import end_receipt
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.run_directory import read_configs
from torl.run.records.writers import RunWriter
from torl.training.policy_versions import load_model
from torl_lab.audit.one import TrajectoryAudit

SHADOWS = ("json", "numpy", "sitecustomize", "transformers", "tomllib", "multiprocessing", "kernels", "trackio")
"""Modules in the run's directory, under names that torl, Python or a library imports."""
# Commands of runs, by what follows their name; {run} is the directory. A new command must be added here.
WORDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "verify": (("{run}",), ("{run}", "--receipt")),
    "doctor": (("{run}",), ("{run}", "--prove")),
    "replay": (("{run}", "--step", "0"),),
    "diff": (("{run}", "{run}"),),
    "report": (("{run}",), ("{run}", "--output", "{out}/page.html")),
    "view": (("--index-only", "{run}"),),
    "export": (("{run}", "{out}/exported"),),
    "convert": (("{run}/trajectories/step_000000.jsonl", "{out}/atif", "--atif"),),
    "sample": (("{run}", "--sample.problems", "torl:demo/problems/heldout.jsonl", "--sample.output", "{out}/s.jsonl"),),
    "evaluate": (
        ("{run}", "--suite", "torl:demo/problems/heldout.jsonl", "--output", "{out}/evaluation"),
        (
            "torl:demo/base_model",
            "--suite",
            "torl:demo/problems/heldout.jsonl",
            "--config",
            "{run}",
            "--output",
            "{out}",
        ),
    ),
    "data": (
        (
            "difficulty",
            "torl:demo/base_model",
            "--problems",
            "{out}/p.jsonl",
            "--output",
            "{out}/q.jsonl",
            "--config",
            "{run}",
        ),
    ),
    "plan": (("{run}",),),
}
NEEDS_NOTHING = {"diff", "report", "view", "convert"}  # of what a configuration names
RUNS = [(command, words) for command, each in WORDS.items() for words in each]


def places() -> list[str]:
    """Every place of a training run's configuration that can name a class or a function, with a key for tables."""
    found = ["reward.parts.own"]
    for name, _ in fields_of(TrainConfig):
        table = (*name.split("."), "own")
        if choice_at(TrainConfig, name.split(".")) is not None:
            found.append(name)
        elif choice_at(TrainConfig, table) is not None:
            found.append(".".join(table))
    return found


PLACES = places()
PARTNERS = ("rollout.agent", "rollout.environment")  # excluded by each other, and by a teacher's prompt
CHAT = {"rollout.format": "hermes"}  # whose models call tools of any name
PROGRAMS = {
    "rollout.tools.own.command": {"rollout.tools.own": {"mcp": "touch MARK"}},
    "rollout.tools.own.url": {"rollout.tools.own": {"mcp": "http://127.0.0.1:1/mcp"}},
    "rollout.tools.own.function": {"rollout.tools.own": {"function": "helper:Thing"}},
    "rollout.tools.own.retrieval": {"rollout.tools.own": {"name": "retrieval", "url": "http://127.0.0.1:1"}},
    "rollout.tools.own.fusion": {"rollout.tools.own": {"name": "sandbox_fusion", "url": "http://127.0.0.1:1"}},
    "rollout.tools.own.search": {"rollout.tools.own": {"name": "search", "corpus": "own.jsonl"}},
    "rollout.agent.command": {"rollout.agent": {"command": "touch own"}},
    "rollout.agent.function": {"rollout.agent": {"function": "helper:own"}},
    "rollout.environment.openenv": {"rollout.environment": {"openenv": "http://127.0.0.1:1/own", "tool": "play"}},
    "rollout.environment.trl": {"rollout.environment": {"trl": "helper:own"}},
    "engine.arguments": {"engine.arguments": {"own": True}},
    "reward.parts.own.judge": {"reward.parts.own": {"name": "judge", "url": "http://127.0.0.1:1", "model": "m"}},
}


def merged(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in changes.items():
        *parents, leaf = name.split(".")
        table = tree
        for parent in parents:
            table = table.setdefault(parent, {})
        table[leaf] = value
    return tree


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Callable[[Mapping[str, Any]], Path]]:
    """Write a run whose configuration has these changes, and whose directory has modules that leave marks."""

    def write(changes: Mapping[str, Any]) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        (tmp_path / "out").mkdir()
        tree = json.loads(load_config(TrainConfig, find_config("demo")).model_dump_json(exclude_none=True))
        text = tomli_w.dumps(merged(tree, changes))
        (run / "config.toml").write_text(f"# The configuration from step 0 on.\n{text}", encoding="utf-8")
        for name in ("helper", *SHADOWS):
            mark = f"open({str(tmp_path / f'MARK-{name}')!r}, 'w').close()\n"
            (run / f"{name}.py").write_text(f"{mark}class Thing: pass\n", encoding="utf-8")
        package = run / "helper-1.0.dist-info"  # as if it were installed there
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n", encoding="utf-8")
        with (package / "entry_points.txt").open("w", encoding="utf-8") as file:
            for group in ("torl.commands", "torl.monitors", "torl.checks", "torl.panels", "torl.readers"):
                names = [*plugins(group), "another"]
                file.write("\n".join([f"[{group}]", *(f"{name} = helper:Thing" for name in names), "", ""]))
        with RunWriter(run, resume_step=None) as writer:
            members = [scored(trajectory("a", sample=index), reward=1.0) for index in range(2)]
            writer.write_trajectories(0, [TrajectoryRecord(0, each.trajectory, each.grade, 0.5) for each in members])
            writer.write_metrics(0, {"learner/loss": 0.25, "time/step": 1.0}, weights="0" * 8)
        (run / "summary.json").write_text("{}\n", encoding="utf-8")
        (run / "model").mkdir()
        end_receipt(run, 1)
        return run

    yield write
    assert not list(tmp_path.glob("MARK*")), "code of the run was executed"


def torl_at(run: Path, here: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory, which `python -m` puts first on Python's path."""
    filled = [word.format(run=os.path.relpath(run, here), out=run.parent / "out") for word in words]
    command = [sys.executable, "-m", "torl", *filled]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, check=False)


def test_every_command_that_reads_runs_is_tried() -> None:
    """A new command is the user's own, or is in the table above."""
    commands = {**OWN, **{name: load_plugin(point, Command) for name, point in plugins(COMMANDS).items()}}
    assert {name for name, command in commands.items() if command.files is not Files.OWN} == WORDS.keys()


@pytest.mark.parametrize(("command", "words"), RUNS, ids=[f"{name}-{words[-1]}" for name, words in RUNS])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "beside"])
@pytest.mark.timeout(300)
def test_no_command_runs_what_a_run_names(
    hostile: Callable[[Mapping[str, Any]], Path], command: str, words: tuple[str, ...], *, inside: bool
) -> None:
    """One component at every place at once: none is imported, and no command says that all is well."""
    changes = {name: {"name": "helper:Thing"} for name in PLACES if name not in PARTNERS}
    run = hostile(changes | {"cluster.kind": "helper:Thing"})
    (run.parent / "out" / "p.jsonl").write_text('{"question": "1?", "answer": "1"}\n', encoding="utf-8")
    done = torl_at(run, run if inside else run.parent, (command, *words))
    assert "Traceback" not in done.stderr
    if command not in NEEDS_NOTHING and command != "export":
        assert done.returncode == NOT_TRUSTED, done.stdout + done.stderr
        assert "helper:Thing is not imported" in done.stdout + done.stderr
        assert "give --trust" in done.stdout + done.stderr
        assert ": ok" not in done.stdout


@pytest.mark.parametrize("place", PLACES)
def test_a_component_is_not_imported_but_kept(hostile: Callable[[Mapping[str, Any]], Path], place: str) -> None:
    """Every place alone: the configuration can be read and written again, and the refusal names the setting."""
    with reading(trust=False) as opened:
        ((_, config),) = read_configs(hostile(CHAT | {place: {"name": "helper:Thing", "limit": 3}}))
    assert [line for line in opened.lines() if f"{place}.name = helper:Thing is not imported" in line]
    assert 'name = "helper:Thing"\nlimit = 3' in str(config)
    assert "helper" not in sys.modules


def test_readers_open_no_block_themselves(hostile: Callable[[Mapping[str, Any]], Path]) -> None:
    """A reader that opens no block reads without trust."""
    ((_, config),) = read_configs(hostile({"reward.parts.own.name": "helper:Thing"}))
    assert isinstance(config.reward.options.parts["own"].target, NotImported)  # type: ignore[attr-defined]
    with pytest.raises(NotTrustedError, match=r"helper:Thing is not imported.*--trust"):
        config.reward.options.parts["own"].target()  # type: ignore[attr-defined]


def made(config: Any, place: str) -> Any:
    """Make the component of a place in `PROGRAMS`, without a start."""
    if place.startswith("engine"):
        return config.engine.make(None)
    if place.startswith("reward"):
        return config.reward.options.parts["own"].make()
    if place.startswith("rollout.tools"):
        return config.rollout.tools["own"].make()
    return getattr(config.rollout, place.split(".")[1]).make()


@pytest.mark.parametrize("place", PROGRAMS)
def test_a_component_is_as_trusted_as_its_file_also_later_and_in_another_thread(
    hostile: Callable[[Mapping[str, Any]], Path], place: str
) -> None:
    """The configuration outlives the block that read it, and a thread of an executor is in no block."""
    config = torl.Run(hostile(CHAT | PROGRAMS[place])).config
    for each in (config, pickle.loads(pickle.dumps(config))):
        with (
            ThreadPoolExecutor(1) as threads,
            pytest.raises(NotTrustedError, match=r" is not (imported|started|indexed|c|p)"),
        ):
            threads.submit(made, each, place).result()


@pytest.mark.parametrize("words", [(), ("--trust",), ("--sample.output", "{out}/own.jsonl")], ids=str)
def test_a_run_does_not_choose_the_file_that_a_sample_is_written_to(
    hostile: Callable[[Mapping[str, Any]], Path], words: tuple[str, ...]
) -> None:
    """A line of JSON in the user's .bashrc can be a command."""
    run = hostile({})
    with (run / "config.toml").open("a") as file:
        file.write(f'[sample]\noutput = "{run.parent}/named.jsonl"\nproblems = "torl:demo/problems/heldout.jsonl"\n')
    done = torl_at(run, run.parent, ("sample", "{run}", "--show", *words))
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if words else NOT_TRUSTED), done.stderr
    assert (f"sample.output = {run.parent}/named.jsonl is not written to" in done.stderr) == (not words)


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "evil/kernel"},
        {"text_config": {"_attn_implementation": "evil/kernel@main"}},
        {"thinker_config": {"text_config": {"attn_implementation": "paged|evil/kernel:f"}}},
        {"attn_implementation": {"": "sdpa", "text_config": "evil/kernel"}},
    ],
    ids=str,
)
def test_no_attention_of_the_hub_is_loaded(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = shutil.copytree(resolve_path("torl:demo/base_model"), tmp_path / "model")
    stated = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(stated | settings))
    with pytest.raises(DataError, match=r"evil/kernel.* is code on the Hub"):
        load_model(model)


def test_no_adapter_leads_to_another_model(tmp_path: Path) -> None:
    """transformers would load what `base_model_name_or_path` names, and look at nothing else in the directory."""
    model = shutil.copytree(resolve_path("torl:demo/base_model"), tmp_path / "model")
    assert load_model(model).config.model_type == "qwen2"
    other = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "other")}
    (model / "adapter_config.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match=r"adapter_config\.json: the directory holds an adapter"):
        load_model(model)


@pytest.mark.parametrize(
    "location",
    [
        "torl.__main__:run",
        "torl.recipes.agent_prm:load_object",
        "torl.base.options:load_object",
        "os:system",
        "helper:Thing",
    ],
)
def test_functions_of_torl_are_no_way_around(location: str) -> None:
    """Only components that a recipe defines: `torl.__main__:run` with the words of a training run is code, too."""
    assert not is_of_recipe(location)
    with reading(trust=False), pytest.raises(NotTrustedError):
        load_object(location)


def test_components_of_recipes_are_torls_own() -> None:
    with reading(trust=False) as opened:
        assert load_object("torl.recipes.sdpo:with_answer").__name__ == "with_answer"
    assert not opened.refused


async def test_the_viewer_names_what_it_did_not_check(hostile: Callable[[Mapping[str, Any]], Path]) -> None:
    run = hostile({"reward.parts.own.name": "helper:Thing"})
    async with TrajectoryAudit(run) as audit:
        for _ in range(2):  # the second request uses the reward of the first
            checks = {check.name: check for check in await audit.verify(run / "trajectories/step_000000.jsonl", 0)}
            assert not checks["rewards"].compared
            assert "reward.parts.own.name = helper:Thing is not imported" in checks["trust"].note


def test_python_has_the_same_question(hostile: Callable[[Mapping[str, Any]], Path]) -> None:
    run = hostile({"rollout.format.name": "helper:Thing"})
    assert isinstance(torl.Run(run).config.rollout.format.target, NotImported)
    with pytest.raises(NotTrustedError, match=r"rollout\.format\.name = helper:Thing"):
        torl_lab.verify(run)


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(torl.ConfigError, match="not a file"):
        read_configs(tmp_path)
