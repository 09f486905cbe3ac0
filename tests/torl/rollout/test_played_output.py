"""Outputs are resumed with the settings, the model and the problems that they were played with, and with no others."""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import torl
from builders import asked
from torl.base.errors import ConfigError, RecordError, TorlError
from torl.base.types import Grade, Group, Problem, SampledTurn
from torl.components.data.layout import Layout
from torl.components.engine import Engine, EngineOptions, EngineSetup
from torl.rollout import played_output
from torl.rollout.played_output import PlayedOutput, problem_digest
from torl.run.config import EvaluateModelConfig, SampleConfig
from torl.run.config.loading import load_config
from torl.run.display.console import Console
from torl.run.records.files import locked_directory, locked_file, write_if_changed
from torl_lab.curation.difficulty import measure_difficulty
from torl_lab.evaluation.playing import play_model, regrade
from torl_lab.evaluation.sets import make_set

DEMO = Path(torl.__file__).parent / "demo" / "base_model"
SECTIONS: dict[str, Any] = {
    "engine": f"{__name__}:StoppingEngine",
    "reward": f"{__name__}:EvenReward",
    "rollout": {"tools": {}, "max_response_tokens": 20},
}


class StoppingEngine(Engine):
    """An engine that ends every turn at once."""

    def __init__(self, setup: EngineSetup, options: EngineOptions) -> None:
        self.stop = setup.stop_token_ids[0]

    async def sample(self, *request: Any, **values: Any) -> SampledTurn:
        return SampledTurn((self.stop,), (-0.5,), ((0, 0),), finish_reason="stop", cached_tokens=0)


class EvenReward(torl.Reward):
    """Says that responses to questions with an even number are correct."""

    async def grade(self, group: Group) -> list[Grade]:
        correct = int(group.prompt.problem.question) % 2 == 0
        return [Grade(float(correct), correct, None) for _ in group.trajectories]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def train_further(model: Path) -> None:
    """Change a byte of the weights, but neither their size nor their time of modification."""
    path = model / "model.safetensors"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_questions(path: Path, *questions: int) -> Path:
    """Write problems without ids, which are line-1, line-2 and so on."""
    path.write_text("".join(json.dumps({"problem": str(each), "answer": "1"}) + "\n" for each in questions))
    return path


# --- records ------------------------------------------------------------------------------------------------------


def test_an_equal_file_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.toml"
    write_if_changed(path, b"one")
    state = path.stat()
    write_if_changed(path, b"one")
    assert path.stat() == state
    write_if_changed(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == [path.name]


def test_a_write_that_fails_leaves_the_record_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, or when the command is killed."""
    record = tmp_path / "settings.toml"
    output = PlayedOutput(tmp_path, played=False)
    output.require(record, "settings", "settings")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        PlayedOutput(tmp_path, played=True).require(record, "settings", "settings")  # writes nothing
        with pytest.raises(RecordError, match="No space left"):
            output.require(record, "others", "settings")
    assert record.read_text() == "settings"


def test_other_settings_are_refused_once_something_was_played(tmp_path: Path) -> None:
    record = tmp_path / "out.toml"
    PlayedOutput(tmp_path, played=False).require(record, "one", "settings")
    PlayedOutput(tmp_path, played=False).require(record, "two", "settings")
    with pytest.raises(ConfigError, match=r"was played with other settings \(see out.toml\): choose another output"):
        PlayedOutput(tmp_path, played=True).require(record, "one", "settings")
    record.unlink()
    with pytest.raises(ConfigError, match=r"has episodes, but out.toml with their settings is missing"):
        PlayedOutput(tmp_path, played=True).require(record, "two", "settings")


def test_another_model_is_found_by_its_contents(tmp_path: Path, model: Path) -> None:
    record, played = tmp_path / "model.json", PlayedOutput(tmp_path / "out", played=True)
    PlayedOutput(tmp_path / "out", played=False).require_model(record, model)
    played.require_model(record, model)
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    played.require_model(record, copy)  # the same contents elsewhere
    (model / "README.md").write_text("It has been read.")
    played.require_model(record, model)
    train_further(model)
    with pytest.raises(ConfigError, match=r"another model: .*/model/model.safetensors has changed since"):
        played.require_model(record, model)
    played.require_model(record, copy)
    (copy / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match=r"another model: .*/copy/generation_config.json has changed since"):
        played.require_model(record, copy)


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a large model take minutes to read."""
    record = tmp_path / "model.json"
    PlayedOutput(tmp_path, played=False).require_model(record, model)

    def read(path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(played_output, "file_entry", read)
    PlayedOutput(tmp_path, played=True).require_model(record, model)
    train_further(model)
    with pytest.raises(AssertionError, match=r"model.safetensors"):
        PlayedOutput(tmp_path, played=True).require_model(record, model)


def test_a_damaged_record_of_a_model_is_an_error(tmp_path: Path, model: Path) -> None:
    (tmp_path / "model.json").write_text('{"config.json": {}}')
    with pytest.raises(RecordError, match="damaged: a hash is missing"):
        PlayedOutput(tmp_path, played=True).require_model(tmp_path / "model.json", model)


def test_another_problem_of_the_same_id_is_refused(tmp_path: Path) -> None:
    output = PlayedOutput(tmp_path / "out.jsonl", played=True)
    played = {"a": problem_digest(asked("a").problem)}
    output.require_problems([Problem("a", "?", "1", {"level": 3}), Problem("b", "?!", "1")], played)
    for other in (Problem("a", "?!", "1"), Problem("a", "?", "2")):
        with pytest.raises(ConfigError, match=r"out.jsonl was played with another problem 'a': restore the problems"):
            output.require_problems([other], played)


# --- commands -----------------------------------------------------------------------------------------------------


def test_samples_are_not_given_to_other_problems(tmp_path: Path, model: Path) -> None:
    output, problems = tmp_path / "out.jsonl", write_questions(tmp_path / "problems.jsonl", 1, 2)

    def sample() -> list[tuple[str, bool]]:
        groups = torl.sample(model, problems, output=output, **SECTIONS)
        return [(group.prompt.problem.question, group.members[0].grade.correct) for group in groups]

    assert sample() == [("1", False), ("2", True)]
    write_questions(problems, 1, 2, 3, 4)
    assert sample() == [("1", False), ("2", True), ("3", False), ("4", True)]  # at the end
    write_questions(problems, 0, 1, 2, 3, 4)
    with pytest.raises(ConfigError, match="was played with another problem 'line-1'"):
        sample()


def test_samples_of_another_model_are_refused(tmp_path: Path, model: Path) -> None:
    sections = {"output": tmp_path / "out.jsonl", **SECTIONS}
    torl.sample(model, ["1"], **sections)
    train_further(model)
    with pytest.raises(ConfigError, match=r"was played with another model: .*model.safetensors has changed"):
        torl.sample(model, ["1"], **sections)


def test_a_model_is_not_read_for_an_output_that_is_not_kept(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(played_output, "file_entry", read)
    assert len(torl.sample(model, ["1"], **SECTIONS)) == 1


@pytest.fixture
def console() -> Iterator[Console]:
    with Console() as console:
        yield console


async def test_an_output_that_another_process_writes_is_refused(tmp_path: Path, model: Path, console: Console) -> None:
    """A command whose terminal was lost may live. The second one would remove its groups and play them again."""
    problems = write_questions(tmp_path / "problems.jsonl", 1, 2)
    samples = {"problems": str(problems), "output": tmp_path / "new" / "rates.jsonl"}
    tree = {"model": {"path": str(model)}, **SECTIONS}
    rates = load_config(SampleConfig, None, tree | {"sample": samples})
    evaluation = load_config(EvaluateModelConfig, None, tree | {"evaluation": {"samples_per_problem": 1}})
    sets = {"problems": make_set(str(problems), Layout())}

    async def sample() -> None:
        await asyncio.to_thread(torl.sample, model, ["1"], output=tmp_path / "new" / "groups.jsonl", **SECTIONS)

    async def play() -> None:
        await play_model(evaluation, tmp_path / "output" / "mine", sets, [0], console)

    async def grade_again() -> None:
        await regrade(tmp_path / "output" / "mine", evaluation, console)

    async def measure() -> None:
        await measure_difficulty(rates, tmp_path / "measured.jsonl", console)

    with ExitStack() as other:
        for lock, path in (
            (locked_file, tmp_path / "new" / "groups.jsonl"),
            (locked_file, tmp_path / "new" / "rates.jsonl"),
            (locked_directory, tmp_path / "output" / "mine"),
        ):
            other.enter_context(lock(path, "command"))
        for command in (sample, measure, play, grade_again):
            with pytest.raises(ConfigError, match="is being written by another command"):
                await command()
        assert not list(tmp_path.rglob("*.toml"))
    for command in (sample, measure, play, grade_again):
        await command()
        await command()


async def test_pass_rates_are_not_given_to_other_problems(tmp_path: Path, model: Path, console: Console) -> None:
    problems = write_questions(tmp_path / "problems.jsonl", 1, 2)
    settings = {"problems": str(problems), "output": tmp_path / "rates.jsonl", "samples_per_problem": 2}
    tree = {"model": {"path": str(model)}, "sample": settings, **SECTIONS}
    config = load_config(SampleConfig, None, tree)

    async def measure() -> dict[str, float]:
        return await measure_difficulty(config, tmp_path / "measured.jsonl", console)

    assert await measure() == {"line-1": 0.0, "line-2": 1.0}
    write_questions(problems, 1, 2, 4)
    assert await measure() == {"line-1": 0.0, "line-2": 1.0, "line-3": 1.0}
    write_questions(problems, 0, 1, 2, 4)
    with pytest.raises(ConfigError, match="was played with another problem 'line-1'"):
        await measure()
    write_questions(problems, 1, 2, 4)
    train_further(model)
    with pytest.raises(ConfigError, match="was played with another model"):
        await measure()


async def test_an_evaluation_does_not_go_on_with_another_model(tmp_path: Path, model: Path, console: Console) -> None:
    """A run that trains further exports its model to the same directory."""
    problems = write_questions(tmp_path / "problems.jsonl", 1, 2)
    tree = {"model": {"path": str(model)}, "evaluation": {"greedy": True, "samples_per_problem": 0}, **SECTIONS}
    config = load_config(EvaluateModelConfig, None, tree)
    sets = {"problems": make_set(str(problems), Layout())}

    async def play() -> None:
        await play_model(config, tmp_path / "output" / "mine", sets, [0], console)

    await play()
    files = {path: path.stat().st_ino for path in (tmp_path / "output").rglob("*.*") if path.suffix != ".jsonl"}
    assert {path.name for path in files} >= {"settings.toml", "model.json", "problems.json", "source.json"}
    await play()
    assert all(path.stat().st_ino == inode for path, inode in files.items())  # a kill cannot damage them
    train_further(model)
    with pytest.raises(TorlError, match=r"mine was played with another model: .*model.safetensors has changed"):
        await play()
