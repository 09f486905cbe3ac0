"""A run that is killed anywhere is the same run after it is resumed, and its steps are made again byte for byte."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from cli import Command, running, training
from torl.run.records.receipt import read_receipt
from torl_lab.replay.differences import run_differences

SETTINGS = {
    "run.steps": "5",
    "run.seed": "3",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "4",
    "evaluation.samples_per_problem": "0",
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "2",
    "checkpoint.keep_last": "3",
    "learner.cpu_threads": "1",  # the sums of the gradient depend on it
}
KILLS = 3
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    with training(SETTINGS | {"run.directory": str(directory)}, log=directory.with_suffix(".log")) as command:
        assert command.wait() == 0, command.output()
    return directory


def torl(log: Path, *arguments: str) -> tuple[int, str]:
    """Run a command of torl and return its status and output."""
    with running("torl", *arguments, log=log) as command:
        return command.wait(600), command.output()


def kill_at_random(command: Command, directory: Path) -> None:
    """Kill a run between its first step and its end."""
    command.wait_for(directory / "trajectories" / "step_000000.jsonl")
    time.sleep(random.uniform(0, 5))
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    command.assert_nothing_left(seconds=30)


def test_killed_run_has_the_content_of_the_whole_one(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    more = {"run.directory": str(directory), "engine.replicas": "2"}  # which engine plays an episode changes nothing
    for number in range(KILLS + 1):
        log = tmp_path / f"{number}.log"
        resume = {"run.resume": "true"} if number else {}
        with training(SETTINGS | more | resume, log=log) as command:
            if number < KILLS:
                kill_at_random(command, directory)
            else:
                assert command.wait() == 0, command.output()
    starts = [line for line in read_receipt(directory) if line["event"] == "start"]
    assert len(starts) > 1
    assert [each for each in run_differences(whole, directory) if each.kind != "settings"] == []
    status, output = torl(tmp_path / "verify.log", "verify", str(directory), "--receipt")
    assert status == 0, output


@pytest.mark.parametrize("step", [2, 3])  # with a checkpoint, and without one
def test_step_is_made_again(whole: Path, tmp_path: Path, step: int) -> None:
    status, output = torl(tmp_path / "replay.log", "replay", str(whole), "--step", str(step))
    assert output.splitlines()[-1] == f"step {step}: equal"
    assert status == 0


def test_changed_step_differs_after_its_update(whole: Path, tmp_path: Path) -> None:
    change = ("--change", "learner.learning_rate=1e-3")
    status, output = torl(tmp_path / "replay.log", "replay", str(whole), "--step", "2", *change)
    assert status == 1
    kinds = [line.partition(":")[0] for line in output.splitlines() if ": step 2" in line or ": after step 2" in line]
    assert kinds == ["metrics", "weights"]
