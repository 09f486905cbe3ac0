"""`torl try` on the demo's base model: the evaluation sets are not read, and nothing is written."""

from pathlib import Path

from cli import running


def test_a_run_is_tried_without_its_evaluation_sets(tmp_path: Path) -> None:
    words = [
        *("demo", "--problems", "6", "--samples", "4", "--run.directory", str(tmp_path / "run")),
        *("--data.evaluation.absent", str(tmp_path / "absent.jsonl")),
        *("--checkpoint.keep_best", "evaluation/absent/reward/accuracy"),
    ]
    with running("torl", "try", *words, log=tmp_path / "log") as command:
        status = command.wait(200)
        found = command.last_json()
        command.assert_nothing_left()
    assert status == int(not found["mixed"]), command.output()
    assert (found["groups"], found["responses"]) == (6, 24)
    assert 0 < found["code_ratio"] < 1
    assert 0 < found["logprob_gap_mean"] <= found["logprob_gap_max"] < 1e-4  # float32 on both sides
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]
