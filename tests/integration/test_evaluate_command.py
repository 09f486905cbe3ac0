"""`python -m torl.evaluate`, every part real: its options reach the episodes, and its records hold what it measured."""

from pathlib import Path

import pytest
from cli import running

import torl
from torl.data import load_problems
from torl.records import metric_names as names
from torl.records.layout import evaluation_files
from torl.records.reading import read_trajectories

MODEL = "torl:demo/base_model"
PROBLEMS = "torl:demo/problems/heldout.jsonl"


def test_an_evaluation_without_the_tool(tmp_path: Path) -> None:
    words = [
        *("demo", "--evaluate.problems", PROBLEMS, "--model.path", MODEL, "--evaluate.tool", "false"),
        *("--evaluation.samples", "2", "--evaluation.max_problems", "3", "--evaluate.output", str(tmp_path / "output")),
    ]
    with running("torl.evaluate", *words, log=tmp_path / "log") as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
        metrics = command.last_json()
    (path,) = evaluation_files(tmp_path / "output")["heldout"]
    records = list(read_trajectories(path))
    expected = [problem.id for problem in load_problems(PROBLEMS)[:3]]
    assert [record.trajectory.prompt.problem.id for record in records] == [name for name in expected for _ in range(2)]
    assert [record.trajectory.sample for record in records] == [0, 1] * 3
    assert not any(record.trajectory.tool_calls for record in records)
    assert metrics[names.CALLS_PER_TRAJECTORY] == 0
    assert metrics[names.CODE_RATIO] > 0  # this model writes code whether or not it runs
    assert metrics[names.ACCURACY] == pytest.approx(sum(record.grade.correct for record in records) / 6)
    assert 0 <= metrics[names.GREEDY_ACCURACY] <= 1


async def test_called_from_python() -> None:
    """Where an event loop runs already, as in a notebook; with problems of one's own and the run's own reward."""
    problems = [torl.Problem("a", "What is 1 + 1?", "2"), torl.Problem("b", "What is 2 + 2?", "4")]
    evaluation = torl.evaluate(
        MODEL,
        problems,
        name="sums",
        rollout={"max_response_tokens": 60},
        evaluation={"samples": 2, "greedy": False},
        engine={"dtype": "float32", "cpu_threads": 1},
        reward={"wrong": -3.0, "correct": 5.0, "workers": 1},
    )
    assert [group.prompt.problem for group in evaluation.groups] == problems
    members = [member for group in evaluation.groups for member in group.members]
    assert {member.trajectory.group for member in members} == {"sums-sampled/a", "sums-sampled/b"}
    assert all(member.grade.reward == (5.0 if member.grade.correct else -3.0) for member in members)
    assert evaluation.metrics[names.ACCURACY] == pytest.approx(sum(member.grade.correct for member in members) / 4)
    assert names.GREEDY_ACCURACY not in evaluation.metrics


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (
            "[rollout]\nmax_tool_cals = 1\n",
            [],
            "rollout.max_tool_cals is unknown; did you mean rollout.max_tool_calls?",
        ),
        ("", ["--evaluation.sampls", "2"], "--evaluation.sampls is unknown; did you mean --evaluation.samples?"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, text: str, words: list[str], message: str) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(f"[model]\npath = 'model'\n{text}")
    words = [str(wrong), "--evaluate.problems", PROBLEMS, *words]
    with running("torl.evaluate", *words, log=tmp_path / "log") as command:
        assert command.wait(60) == 2
        assert message in command.output()
