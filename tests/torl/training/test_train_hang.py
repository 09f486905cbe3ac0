"""A part that lives and gives no answer ends a run, which says which part it was and what all processes were doing."""

import os
import re
import signal
from pathlib import Path

import pytest

from cli import running
from learner_fixtures import random_samples, start_learner, write_tiny_model
from torl.base.errors import LearnerHungError

TOOL = """
import asyncio
import torl

class Hanging(torl.StatefulTool):
    description = "Gives no answer."
    parameters = {"type": "object"}

    def session(self, seed: int) -> "Session":
        return Session()

class Session(torl.ToolSession):
    async def call(self, arguments):
        await asyncio.Event().wait()
"""
CONFIG = """
[run]
steps = 2
directory = "{directory}/run"

[model]
path = "torl:demo/base_model"

[data]
train = "torl:demo/problems/train.jsonl"

[rollout]
prompts_per_step = 4
samples_per_prompt = 4
max_response_tokens = 160
stall_timeout_seconds = 10

[rollout.tools.python]
name = "hanging:Hanging"

[engine]
dtype = "float32"
replicas = 2
cpu_threads = 1

[learner]
ranks = 2
dtype = "float32"
"""


@pytest.mark.slow
def test_hanging_tool_is_named_and_all_stacks_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging.py").write_text(TOOL)
    (tmp_path / "hang.toml").write_text(CONFIG.format(directory=tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with running("torl.train", str(tmp_path / "hang.toml"), log=tmp_path / "output.log") as command:
        assert command.wait(400) == 1, command.output()
        command.assert_nothing_left()
    last = [line for line in command.output().splitlines() if line.startswith("error: ")]
    assert last == ["error: the tool 'python' did not respond within 10 s (rollout.stall_timeout_seconds)"]
    logs = tmp_path / "run" / "logs"
    assert "the stacks of all processes are in" in command.output()
    assert "in call" in (logs / "controller.log").read_text()  # where the tool waits
    for log in ("engine_0.log", "engine_1.log", "learner_rank_0.log", "learner_rank_1.log"):
        assert "Current thread 0x" in (logs / log).read_text()


@pytest.mark.slow
async def test_hanging_collective_ends_learner_with_stacks(tmp_path: Path) -> None:
    model, logs = write_tiny_model(tmp_path / "model"), tmp_path / "logs"
    learner = await start_learner(model, logs, ranks=2, zero_stage=2)
    first, second = (rank.process for rank in learner._group.ranks)
    assert first is not None
    assert second is not None
    learner._group._timeout_seconds = 10.0  # gloo's own is that of the start, 120 s
    os.kill(second.pid, signal.SIGSTOP)
    text = r"did not finish 'update_policy' within 10 s .*; the stacks of its ranks: .*rank_0.log"
    with pytest.raises(LearnerHungError, match=text):
        await learner.update(random_samples(5, seed=4), step=0)
    written = (logs / "learner_rank_0.log").read_text()
    assert re.search("in (all_)?reduce", written)
    assert "in update_policy" in written
    assert first.poll() is not None
    assert second.poll() is not None
