"""`python -m torl evaluate`, every part real: its options reach the episodes, and its records hold what it measured."""

import json
from pathlib import Path

import pytest

import torl
from cli import running
from torl.components.data import load_problems
from torl.run.records import metric_names as names
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord
from torl_lab.evaluation.command import main

MODEL = "torl:demo/base_model"
PROBLEMS = "torl:demo/problems/heldout.jsonl"


def test_a_model_with_and_without_the_tool(tmp_path: Path) -> None:
    """Then its answers are graded again, and nothing is played twice."""
    output = tmp_path / "output"
    words = [
        *(f"base={MODEL}", "--suite", PROBLEMS, "--tools", "both", "--config", "demo", "--output", str(output)),
        *("--evaluation.samples_per_problem", "2", "--evaluation.max_problems", "3", "--engine.cpu_threads", "1"),
    ]
    with running("torl", "evaluate", *words, log=tmp_path / "log") as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
        assert "| base, N = 1 |" in command.output()
    reply = json.loads((output / "results.json").read_text())
    expected = [problem.id for problem in load_problems(PROBLEMS)[:3]]
    groups = {calls: _groups(output / f"base/heldout/calls_{calls}_sampled.jsonl") for calls in (0, 1)}
    for calls, played in groups.items():
        assert set(played) == set(expected)
        records = [record for members in played.values() for record in members]
        assert [record.trajectory.sample_index for record in records] == [0, 1] * 3
        # This model writes code whether or not it runs.
        assert any(turn.blocks for record in records for turn in record.trajectory.turns)
        assert any(record.trajectory.tool_calls for record in records) == (calls > 0)
        (measured,) = (row for row in reply["accuracy"] if (row["max_tool_calls"], row["measure"]) == (calls, "avg@2"))
        assert measured["sets"]["heldout"]["value"] == pytest.approx(sum(r.grade.correct for r in records) / 6)
    for problem in expected:  # the same seeds: they differ from where the tool answers on
        one, other = (groups[calls][problem][0].trajectory.turns[0].text for calls in (0, 1))
        assert other.startswith(one[: len(other)])
    file = output / "base/heldout/calls_1_greedy.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    verdicts = [row["correct"] for row in rows]
    file.write_text("".join(json.dumps(row | {"correct": not row["correct"]}) + "\n" for row in rows))
    assert main(["--regrade", "--output", str(output)]) == 0
    assert [record.grade.correct for record in read_trajectories(file)] == verdicts


def _groups(path: Path) -> dict[str, list[TrajectoryRecord]]:
    groups: dict[str, list[TrajectoryRecord]] = {}
    for record in read_trajectories(path):
        groups.setdefault(record.trajectory.prompt.problem.id, []).append(record)
    return groups


@pytest.mark.slow
async def test_called_from_python() -> None:
    """With a running event loop, as in a notebook; with custom problems and the run's own reward."""
    problems = [torl.Problem("a", "What is 1 + 1?", "2"), torl.Problem("b", "What is 2 + 2?", "4")]
    evaluation = torl.evaluate(
        MODEL,
        problems,
        name="sums",
        rollout={"max_response_tokens": 60},
        evaluation={"samples_per_problem": 2, "greedy": False},
        engine={"dtype": "float32", "cpu_threads": 1},
        reward={"parts": {"answer": {"name": "math", "wrong": -3.0, "correct": 5.0}}},
    )
    assert [group.prompt.problem for group in evaluation.groups] == problems
    members = [member for group in evaluation.groups for member in group.members]
    assert {member.trajectory.group_id for member in members} == {"sums-sampled/a", "sums-sampled/b"}
    assert all(member.grade.reward == (5.0 if member.grade.correct else -3.0) for member in members)
    assert evaluation.metrics[names.ACCURACY] == pytest.approx(sum(member.grade.correct for member in members) / 4)
    assert names.GREEDY_ACCURACY not in evaluation.metrics


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rollout.max_tool_cals", "1"], "did you mean --rollout.max_tool_calls?"),
        (["--max-tool-calls", "0,many"], "--max-tool-calls must be numbers of tool calls such as 0,2,4, got '0,many'"),
        ([f"base={MODEL}"], "the label 'base' is invalid or already used: write LABEL="),
        (["--suite", "hmmt_feb24"], "lacks hmmt_feb24.jsonl"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [f"base={MODEL}", *(word for word in words if "=" in word)]
    options = [word for word in words if "=" not in word]
    assert main([*models, "--suite", PROBLEMS, "--output", str(tmp_path), *options]) in (1, 2)
    assert message in capsys.readouterr().err


def test_a_command_without_a_model_or_problems_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], [MODEL], ["--suite", PROBLEMS]):
        assert main(words) == 2
        assert "MODEL and --suite are required" in capsys.readouterr().err


def test_programs_are_judged_by_their_tests(tmp_path: Path) -> None:
    """A set with tests needs no answers and no further option."""
    rows = [
        {"id": f"p{n}", "problem": problem.question, "tests": {"tests": [{"inputs": [["", problem.answer]]}]}}
        for n, problem in enumerate(load_problems(PROBLEMS)[:6])
    ]
    humaneval = {
        "task_id": "HumanEval/0",
        "prompt": "def one() -> int:\n",
        "canonical_solution": "    return 1\n",
        "entry_point": "one",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }
    for name, content in (("programs", rows), ("humaneval", [humaneval])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    output = tmp_path / "output"
    words = [
        *(f"base={MODEL}", "--suite", f"humaneval={tmp_path / 'humaneval.jsonl'}", str(tmp_path / "programs.jsonl")),
        *("--config", "demo", "--output", str(output), "--engine.cpu_threads", "1"),
        *("--evaluation.samples_per_problem", "8", "--evaluation.greedy", "false"),
    ]
    with running("torl", "evaluate", *words, log=tmp_path / "log") as command:
        assert command.wait() == 0, command.output()
        assert "fields that are not read: tests" not in command.output()
    details = [
        record.grade.detail.partition(":")[0]
        for members in _groups(output / "base/programs/calls_1_sampled.jsonl").values()
        for record in members
        if not record.grade.correct and record.grade.answer
    ]
    assert details
    assert set(details) <= {"wrong", "exception"}
    [members] = _groups(output / "base/humaneval/calls_1_sampled.jsonl").values()
    assert not any(record.grade.correct for record in members)
