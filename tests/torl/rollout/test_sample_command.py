"""Sampling without learning: a command that is resumed after a kill, and a call of Python."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import torl
from cli import running
from torl.base.errors import ConfigError, DataError
from torl.run.records.reading import read_trajectories

MODEL = "torl:demo/base_model"
ENGINE = {"dtype": "float32", "cpu_threads": 1, "arguments": {"block_size": 64}}


@pytest.mark.slow
def test_a_killed_command_is_resumed_where_it_was(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    words = [
        *("--sample.problems", "torl:demo/problems/heldout.jsonl", "--sample.output", str(output)),
        *("--sample.samples_per_problem", "4", "--sample.max_problems", "24", "--rollout.max_concurrent_episodes", "4"),
    ]
    with running("torl", "sample", "demo", *words, log=tmp_path / "first.log") as command:
        deadline = time.monotonic() + 200
        while not output.exists() or output.stat().st_size < 10_000:
            assert time.monotonic() < deadline, command.output()
            time.sleep(0.02)
        command.process.send_signal(signal.SIGKILL)
        command.wait(30)
    with output.open("ab") as file:
        file.write(b'{"step": 0, "group')  # as a kill in the middle of a line would leave it
    before = {(r.trajectory.group_id, r.trajectory.sample_index): r for r in read_trajectories(output)}
    assert 0 < len(before) < 96
    with running("torl", "sample", "demo", *words, log=tmp_path / "second.log") as command:
        assert command.wait(200) == 0, command.output()
        command.assert_nothing_left()
        summary = command.last_json()
        assert "Exception ignored" not in command.output()
    after = {(r.trajectory.group_id, r.trajectory.sample_index): r for r in read_trajectories(output)}
    assert len(after) == summary["trajectories"] == 96
    for name, record in before.items():
        assert after[name].trajectory.token_ids_T.tolist() == record.trajectory.token_ids_T.tolist()
    with running(
        "torl", "sample", "demo", *words, "--rollout.temperature", "0.5", log=tmp_path / "third.log"
    ) as command:
        assert command.wait(100) == 1
        assert "was played with other settings" in command.output()


@pytest.mark.slow
async def test_called_from_python(tmp_path: Path) -> None:
    """With a running event loop, as in a notebook."""
    output = tmp_path / "out.jsonl"
    questions = ["What is 17 * 23?", f"What is {' + '.join(map(str, range(20, 44)))}?"]

    def sample(questions: list[str]) -> list[torl.ScoredGroup]:
        return torl.sample(
            MODEL, questions, samples_per_problem=3, output=output, rollout={"max_response_tokens": 60}, engine=ENGINE
        )

    groups = sample(questions)
    assert [group.prompt.problem.question for group in groups] == questions
    assert [[member.trajectory.sample_index for member in group.members] for group in groups] == [[0, 1, 2]] * 2
    assert not any(member.grade.correct for group in groups for member in group.members)  # it cannot know them
    prompt_tokens = len(groups[-1].prompt.token_ids)
    cached = max(member.trajectory.turns[0].cached_tokens for member in groups[-1].members)
    assert cached == (prompt_tokens - 1) // 64 * 64 != (prompt_tokens - 1) // 32 * 32  # the engine got its arguments
    written = list(read_trajectories(output))
    assert len(written) == 6
    assert all(record.trajectory.format == "torl" for record in written)

    again = sample(questions)  # starts nothing: all is there
    assert [group.prompt.problem.question for group in again] == questions
    returned, reread = (
        [replace(member.grade, parts={}) for group in each for member in group.members] for each in (groups, again)
    )
    assert returned == reread
    with pytest.raises(ConfigError, match="was played with other settings"):
        sample(["What is 2 + 2?"])
    assert len(list(read_trajectories(output))) == 6


def test_mistakes_in_a_call_are_named() -> None:
    with pytest.raises(ConfigError, match=r"torl\.sample: rollout\.max_tool_cals is unknown; did you mean"):
        torl.sample(MODEL, ["?"], rollout={"max_tool_cals": 3})
    with pytest.raises(ConfigError, match=r"torl\.sample: roolout is unknown; did you mean rollout"):
        torl.sample(MODEL, ["?"], roolout={})
    with pytest.raises(DataError, match="there are no problems"):
        torl.sample(MODEL, [])
    with pytest.raises(DataError, match="no such file"):
        torl.sample("no/such/model", ["?"])
    with pytest.raises(DataError, match="no such file"):
        torl.sample(MODEL, "no_such_problems.jsonl")
    with pytest.raises(ConfigError, match=r"torl\.evaluate: evaluation\.sampls is unknown"):
        torl.evaluate(MODEL, "no_such_problems.jsonl", evaluation={"sampls": 3})
    with pytest.raises(ConfigError, match=r"torl\.train: run\.stepz is unknown; did you mean run\.steps"):
        torl.train("demo", {"run.stepz": 3})
    with pytest.raises(ConfigError, match="no preset of that name; did you mean demo"):
        torl.train("demoo")
