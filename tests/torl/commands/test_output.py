"""The output of a command ends quietly when its reader disconnects, as in `torl COMMAND | head`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import ROOT
from torl.__main__ import OWN, main
from torl.base.errors import ConfigError

WORDS = {"--help": [], "presets": [], "plan": ["demo"], "train": ["demo", "--show"], "data": ["sources"]}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", WORDS)
def test_a_command_ends_when_its_reader_disconnects(command: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "torl", command, *WORDS[command]],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (ended.stderr, ended.returncode) == ("", 128 + signal.SIGPIPE)


@pytest.mark.parametrize("command", sorted(OWN))
def test_the_help_of_a_command_ends_when_its_reader_disconnects(command: str) -> None:
    program = f"{sys.executable} -m torl {command} --help | head -c 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert ended.returncode in (0, 128 + signal.SIGPIPE)  # 0 if all was written before


def test_a_run_ends_when_its_reader_disconnects(tmp_path: Path) -> None:
    (tmp_path / "examples.jsonl").write_text('{"text": "one plus one is two"}\n' * 4)
    settings = {
        "finetune.train": "examples.jsonl",
        "finetune.batch_size": "2",
        "run.directory": "tuned",
        "run.steps": "1",
        "data.evaluation": "{}",
        "evaluation.every_steps": "0",
        "learner.cpu_threads": "1",
        "learner.learning_rate": "0.0001",
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "torl", "finetune", "demo", *words],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (ended.stderr, ended.returncode) == ("", 128 + signal.SIGPIPE)


def test_a_command_needs_no_output() -> None:
    program = f"{sys.executable} -m torl --version >&-"
    ended = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_errors_without_a_reader_end_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "torl", "no-such-command"]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=writing, text=True, check=False)
    os.close(writing)
    assert (ended.stdout, ended.returncode) == ("", 128 + signal.SIGPIPE)


def test_a_broken_pipe_in_a_group_of_errors_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(arguments: object) -> int:
        raise ExceptionGroup("two tasks", [BrokenPipeError("of the output"), ConfigError("wrong")])

    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("torl.commands.presets.main", work)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert main(["presets"]) == 128 + signal.SIGPIPE


def test_another_broken_pipe_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(arguments: object) -> int:
        raise BrokenPipeError("of a child")

    monkeypatch.setattr("torl.commands.presets.main", work)
    with pytest.raises(BrokenPipeError, match="of a child"):
        main(["presets"])
