"""The audit of single files: of torl, and of other libraries."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import torl_lab
from builders import call, grade, trajectory
from torl.base.errors import RecordError
from torl.base.types import Outcome, OutcomeStatus
from torl.run.records.rows import TrajectoryRecord, encode_row, encode_trajectory
from torl_lab.audit.one_file import verify_file
from torl_lab.audit.run import Audit, main, verify_run


def row(sample: int = 0, **changes: Any) -> dict[str, Any]:
    made = trajectory(
        "```python\n1\n```\n", "\\boxed{2}", calls=[call("1", Outcome(OutcomeStatus.OK, "1\n"))], turn_tokens=3
    )
    found = encode_trajectory(TrajectoryRecord(0, made, grade(answer="2"), 0.5))
    return found | {"sample": sample, "reference_answer": "2", "correct": True} | changes


def audit(path: Path, *rows: dict[str, Any]) -> Audit:
    path.write_bytes(b"".join(map(encode_row, rows)))
    return asyncio.run(verify_run(path))


def test_clean_file_passes_and_says_what_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audit(tmp_path / "a.jsonl", row(), row(1))
    assert found.ok
    assert [found[name].compared for name in ("structure", "groups", "tokens", "rewards")] == [2, 4, 2, 2]
    assert found["logprobs"].note == "the file has no weights"
    assert main([str(tmp_path / "a.jsonl")]) == 0
    assert "not checked" in capsys.readouterr().out


def test_a_script_checks_a_file_as_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_row(row()) + encode_row(row(1, correct=False)))
    found = torl_lab.verify(path)
    assert [(check.name, check.wrong) for check in found.checks if check.wrong] == [("rewards", 1)]


def test_changed_grade_mask_group_and_turn_are_found(tmp_path: Path) -> None:
    wrong_mask = [[True, len(row()["token_ids"])]]
    turns = row()["turns"]
    for changed, name in (
        (row(1, correct=False), "rewards"),
        (row(1, loss_mask=wrong_mask), "tokens"),
        (row(0), "groups"),
        (row(1, turns=turns[::-1]), "structure"),
    ):
        found = audit(tmp_path / "a.jsonl", row(), changed)
        assert found[name].wrong, name


def test_one_line_counts_only_its_own_comparisons(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(map(encode_row, [row(), row(1, correct=False), row(2, group="other"), row(0)])))
    wrong = [{check.name: check.wrong for check in verify_file(path, line)} for line in range(4)]
    assert [each["rewards"] for each in wrong] == [0, 1, 0, 0]
    assert [each["groups"] for each in wrong] == [1, 0, 0, 1]  # the first and the last are the same
    assert [check.compared for check in verify_file(path, 2)][:4] == [1, 2, 1, 1]
    with pytest.raises(RecordError, match="has 4 trajectories, expected line 5"):
        verify_file(path, 4)


def test_grade_of_another_library_without_a_boxed_answer_is_not_compared(tmp_path: Path) -> None:
    line = {"input": "Q", "output": "It is 2.", "gts": "2", "score": 1.0, "step": 1}
    (tmp_path / "1.jsonl").write_text(json.dumps(line) + "\n")
    [rewards] = [check for check in verify_file(tmp_path / "1.jsonl") if check.name == "rewards"]
    assert (rewards.compared, rewards.note) == (0, "another library graded answers that are not boxed")


def test_file_of_another_library_is_graded_again(tmp_path: Path) -> None:
    line = {"input": "Q", "output": "\\boxed{2}", "gts": "2", "score": 1.0, "step": 1}
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (line, line | {"score": -1.0})))
    found = asyncio.run(verify_run(tmp_path / "1.jsonl"))
    assert (found["rewards"].compared, found["rewards"].wrong) == (2, 1)
    assert (found["tokens"].compared, found["tokens"].note) == (0, "some trajectories have no token ids")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(RecordError, match="neither a file of trajectories"):
        asyncio.run(verify_run(tmp_path / "other.jsonl"))
