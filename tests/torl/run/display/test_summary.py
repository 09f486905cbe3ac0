"""The summary of a run, from rows of its metrics."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from torl.base.errors import RecordError
from torl.run.display.outcome import summarize, write_summary
from torl.run.records import metric_names as names


def evaluation(step: int, accuracy: float, loss: float) -> dict[str, Any]:
    metrics = names.evaluation_metrics("held", {names.ACCURACY: accuracy}) | {names.VALIDATION_LOSS: loss}
    return {"step": step, names.TIME_EVALUATION: 2.0, **metrics}


FIRST, SECOND, LAST = (evaluation(step, step / 10, 1 - step / 10) for step in (0, 3, 6))
STEPS = [{"step": step, names.TIME_STEP: 1.0} for step in range(6)]


def test_a_run_has_its_first_and_its_last_evaluation() -> None:
    summary = summarize(Path("run"), [FIRST, *STEPS[:3], SECOND, *STEPS[3:], LAST])
    assert (summary["accuracy_before"], summary["accuracy_after"]) == (0.0, 0.6)
    assert (summary["validation_loss_before"], summary["validation_loss_after"]) == (1.0, 0.4)
    assert summary["evaluation"]["held"]["accuracy_after"] == 0.6
    assert summary["pass_ratio_before"] is None
    assert summary["train_seconds"] == 12.0


def test_a_run_without_an_evaluation_before_training_has_none_of_its_measures() -> None:
    summary = summarize(Path("run"), [*STEPS[:3], SECOND, *STEPS[3:], LAST])
    assert (summary["accuracy_before"], summary["accuracy_after"]) == (None, 0.6)
    assert (summary["validation_loss_before"], summary["validation_loss_after"]) == (None, 0.4)


def test_a_run_without_evaluations_has_no_accuracies() -> None:
    summary = summarize(Path("run"), STEPS)
    assert summary["evaluation"] == {}
    assert "accuracy_after" not in summary


def test_a_summary_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its existence means that the run has finished."""
    (tmp_path / "metrics.jsonl").write_text(json.dumps(FIRST) + "\n")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"summary.json: cannot be written: No space left on device"):
            write_summary(tmp_path)
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
    summary = write_summary(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
