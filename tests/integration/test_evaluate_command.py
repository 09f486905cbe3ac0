"""`python -m torl.evaluate`, every part real: its options reach the episodes, and its records hold what it measured."""

from pathlib import Path

import pytest
from cli import ROOT, running

from torl.data import load_problems
from torl.metrics import names
from torl.metrics.records import evaluation_files, read_trajectories

PROBLEMS = "torl:demo/problems/heldout.jsonl"


def test_an_evaluation_without_the_tool(tmp_path: Path) -> None:
    words = ["torl:demo/base_model", PROBLEMS, "--config", str(ROOT / "configs" / "demo.toml"), "--tool", "off"]
    words += ["--samples", "2", "--max-problems", "3", "--output", str(tmp_path / "output")]
    with running("torl.evaluate", *words, log=tmp_path / "log") as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
        metrics = command.last_json()
    (path,) = evaluation_files(tmp_path / "output")["heldout"]
    records = list(read_trajectories(path))
    expected = sorted(problem.id for problem in load_problems(PROBLEMS)[:3])
    assert [record.trajectory.prompt.problem.id for record in records] == [name for name in expected for _ in range(2)]
    assert [record.trajectory.sample for record in records] == [0, 1] * 3
    assert not any(record.trajectory.tool_calls for record in records)
    assert metrics[names.CALLS_PER_TRAJECTORY] == 0
    assert metrics[names.CODE_RATIO] > 0  # this model writes code whether or not it runs
    assert metrics[names.ACCURACY] == pytest.approx(sum(record.grade.correct for record in records) / 6)
    assert 0 <= metrics[names.GREEDY_ACCURACY] <= 1


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[rollout]\nmax_tool_cals = 1\n")
    with running("torl.evaluate", "model", PROBLEMS, "--config", str(wrong), log=tmp_path / "log") as command:
        assert command.wait(60) == 2
        assert "max_tool_cals" in command.output()
