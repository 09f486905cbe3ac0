"""The output of a command ends quietly when its reader disconnects, as in `torl COMMAND | head`."""

import os
import signal
import subprocess
import sys

import pytest

from cli import ROOT
from torl.__main__ import OWN, main

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


def test_another_broken_pipe_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(arguments: object) -> int:
        raise BrokenPipeError("of a child")

    monkeypatch.setattr("torl.commands.presets.main", work)
    with pytest.raises(BrokenPipeError, match="of a child"):
        main(["presets"])
