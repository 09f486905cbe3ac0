"""The scores of torl's own doctors on a run: `torl doctor`, `torl verify`, its receipt, the run's own stop, replay."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.doctors.exhibits.catalog import RECEIPT, REPLAY, Exhibit
from torl.base.errors import EngineError, TorlError
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics
from torl.run.records.run_directory import read_config
from torl.training.health import PolicyComparison
from torl_lab.audit.receipt import verify_receipt
from torl_lab.audit.run import verify_run
from torl_lab.doctor.history import StepHistory, read_evaluated_questions
from torl_lab.doctor.registry import run_checks

LOGPROB_SAMPLES: Final = 8
"""Trajectories of each policy version whose log-probabilities `torl verify` computes again. Its default is 64."""
_STEP = re.compile(r"\bstep (\d+)")


def score_torl(directory: Path, exhibit: Exhibit | None) -> dict[str, Any]:
    """Return the names that each part of torl gives the run, each with the number of recorded steps that it took."""
    found: dict[str, Any] = {"doctor": doctor(directory), **verify(directory), "stop": stop(directory)}
    if exhibit is not None and REPLAY in exhibit.truth:
        found[REPLAY] = replay(directory)
    return found


def doctor(directory: Path) -> dict[str, int]:
    """Return the findings of `torl doctor`, each with the number of steps after which it was first given."""
    config = read_config(directory)
    assert isinstance(config, TrainConfig)
    history, named = StepHistory(config, evaluated=read_evaluated_questions(directory)), dict[str, int]()
    for row in read_metrics(directory):
        if names.TIME_EVALUATION in row:
            history.evaluations.append(row)
        if names.TIME_STEP in row:
            history.add_row(directory, row)
            for finding in run_checks(history).findings:
                named.setdefault(finding.check.id, len(history.steps))
    return named


def verify(directory: Path) -> dict[str, Any]:
    """Return the checks of `torl verify` with mismatches, each with the step of its first mismatch, and the receipt."""
    checks = asyncio.run(verify_run(directory, LOGPROB_SAMPLES)).checks
    wrong = [check for check in checks if check.wrong]
    receipt = asyncio.run(verify_receipt(directory))
    return {
        "verify": {f"verify:{check.name}": _first_step(check.examples) for check in wrong},
        "verify_examples": {check.name: check.examples[0] for check in wrong},
        RECEIPT: {RECEIPT: len(steps_of(directory))} if receipt.wrong else {},
        "receipt_examples": receipt.examples[:1],
    }


def _first_step(examples: Sequence[str]) -> int:
    """Return the number of steps of a run that ends with the first step that is named, at least 1."""
    return min((int(step) + 1 for step in _STEP.findall(" ".join(examples))), default=1)


def stop(directory: Path) -> dict[str, int]:
    """Return the step after which torl would have stopped the run by itself, with its default settings."""
    config = read_config(directory)
    assert isinstance(config, TrainConfig)
    learner = config.learner.model_copy(update={"max_logprob_gap": None})
    comparison = PolicyComparison(config.model_copy(update={"learner": learner}), on_gpus=False)
    for count, row in enumerate(read_metrics(directory), 1):
        try:
            comparison.require_match(row["step"], {name: value for name, value in row.items() if value is not None})
        except EngineError:
            return {"stop": count}
        except TorlError:
            continue
    return {}


def replay(directory: Path) -> dict[str, int]:
    """Return whether `torl replay` makes another step than the recorded one, at the step in the middle of the run."""
    steps = steps_of(directory)
    middle = len(steps) // 2
    done = _torl("replay", str(directory), "--step", str(steps[middle]))
    return {REPLAY: middle + 1} if done.returncode == 1 else {}


def steps_of(directory: Path) -> list[int]:
    """Return the numbers of the training steps in the records."""
    return [row["step"] for row in read_metrics(directory) if names.TIME_STEP in row]


def _torl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "torl", *words], capture_output=True, text=True, check=False)
