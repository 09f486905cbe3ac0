"""The command that only samples: resumed after a kill, and called from Python."""

import json
import signal
import time
from pathlib import Path

import pytest
from cli import ROOT, running

import torl.rollout
from torl.errors import ConfigError
from torl.metrics.records import read_trajectories

DEMO = str(ROOT / "configs" / "demo.toml")
MODEL = "torl:demo/base_model"
ENGINE = {"dtype": "float32", "cpu_threads": 1, "arguments": {"block_size": 64}}


def test_a_killed_command_goes_on_where_it_was(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    words = [
        *("--sample.problems", "torl:demo/problems/heldout.jsonl", "--sample.output", str(output)),
        *("--sample.samples", "4", "--sample.max_problems", "60", "--rollout.max_concurrent_episodes", "4"),
    ]
    with running("torl.rollout", DEMO, *words, log=tmp_path / "first.log") as command:
        deadline = time.monotonic() + 200
        while not output.exists() or output.stat().st_size < 20_000:
            assert time.monotonic() < deadline, command.output()
            time.sleep(0.02)
        command.process.send_signal(signal.SIGKILL)
        command.wait(30)
    with output.open("ab") as file:
        file.write(b'{"step": 0, "group')  # as a kill in the middle of a line would leave it
    before = {(r.trajectory.group, r.trajectory.sample): r for r in read_trajectories(output)}
    assert 0 < len(before) < 240
    with running("torl.rollout", DEMO, *words, log=tmp_path / "second.log") as command:
        assert command.wait(200) == 0, command.output()
        command.assert_nothing_left()
        summary = json.loads(command.output().splitlines()[-1])
    after = {(r.trajectory.group, r.trajectory.sample): r for r in read_trajectories(output)}
    assert len(after) == summary["trajectories"] == 240
    for name, record in before.items():
        assert after[name].trajectory.token_ids_T.tolist() == record.trajectory.token_ids_T.tolist()
    with running("torl.rollout", DEMO, *words, "--rollout.temperature", "0.5", log=tmp_path / "third.log") as command:
        assert command.wait(100) == 1
        assert "was made with other settings" in command.output()


def test_called_from_python(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    questions = ["What is 17 * 23?", f"What is {' + '.join(map(str, range(20, 44)))}?"]
    trajectories = torl.rollout(  # type: ignore[operator]
        MODEL, questions, samples=3, output=output, rollout={"max_response_tokens": 60}, engine=ENGINE
    )
    assert [t.prompt.problem.question for t in trajectories] == [q for q in questions for _ in range(3)]
    assert [t.sample for t in trajectories] == [0, 1, 2, 0, 1, 2]
    prompt_tokens = len(trajectories[-1].prompt.token_ids)
    cached = max(trajectory.turns[0].cached_tokens for trajectory in trajectories[3:])
    assert cached == (prompt_tokens - 1) // 64 * 64 != (prompt_tokens - 1) // 32 * 32  # the engine got its arguments
    assert len(list(read_trajectories(output))) == 6
    with pytest.raises(ConfigError, match="max_tool_cals"):
        torl.rollout(MODEL, questions, rollout={"max_tool_cals": 3})  # type: ignore[operator]
    with pytest.raises(ConfigError, match="roolout"):
        torl.rollout(MODEL, questions, roolout={})  # type: ignore[operator]
