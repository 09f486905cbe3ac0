"""Whole training runs through the command line, every part real: how they end, what they write, what they leave."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from cli import ROOT, Command, training, training_words
from places import HELPERS
from torl.__main__ import OWN, run
from torl.components.text.tokenizer import load_tokenizer

BASE_MODEL = ROOT / "python" / "torl" / "demo" / "base_model"
SMALL = {
    "run.steps": "2",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "8",
    "evaluation.samples_per_problem": "1",
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "1",
}


def train(directory: Path, **changes: str) -> AbstractContextManager[Command]:
    """The demo, smaller; keywords are options with `__` for the dot."""
    return training(settings(directory, **changes), log=directory.with_suffix(".log"))


def settings(directory: Path, **changes: str) -> dict[str, str]:
    options = SMALL | {"run.directory": str(directory)}
    return options | {name.replace("__", "."): value for name, value in changes.items()}


def metric_rows(directory: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def steps_trained(directory: Path) -> list[float]:
    return [row["step"] for row in metric_rows(directory) if "time/step" in row]


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    changes = {"learner__ranks": "2", "learner__zero_stage": "2"}
    changes |= {"engine__replicas": "2", "learner__verify_weights": "true"}
    changes |= {"engine__sleep_while_learning": "true", "learner__offload": "while_sampling"}
    changes |= {"run__group_metrics_by": "source"}
    with train(directory, **changes) as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
        summary = command.last_json()
    expected = {
        f"{name}_{when}" for name in ("accuracy", "greedy_accuracy", "code_ratio") for when in ("before", "after")
    }
    assert expected <= summary.keys()
    assert all(0 <= summary[name] <= 1 for name in expected)
    assert summary["train_seconds"] > 0
    assert Path(summary["report"]).read_text().startswith("<!doctype html>")
    assert steps_trained(directory) == [0, 1]
    rows = metric_rows(directory)
    assert any(name.startswith("by/") for row in rows if "time/step" in row for name in row)
    assert any(name.startswith("evaluation/heldout/by/") for row in rows for name in row)
    # fp32 on both sides: trainer and engine hold the same policy at every step. Rounding alone reaches 1e-5 to 7e-5 on
    # single tokens of this model, whose logits are large; weights that are one step old differ by far more.
    trained = [row for row in rows if "learner/logprob_gap_max" in row]
    assert trained
    assert max(row["learner/logprob_gap_mean"] for row in trained) < 2e-6
    assert max(row["learner/logprob_gap_max"] for row in trained) < 1e-4
    records = [json.loads(line) for line in (directory / "trajectories" / "step_000001.jsonl").read_text().splitlines()]
    assert len(records) == 24
    versions = {version for record in records for version, _ in record["policy_versions"]}
    assert versions <= {1, -1}
    assert list((directory / "tensorboard").iterdir())
    exported = directory / "model"
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(BASE_MODEL, dtype=torch.float32)
    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), base.parameters(), strict=True)]
    assert any(moved)
    text = "Find 12345 squared.\n```python\n"
    assert load_tokenizer(exported).encode(text) == load_tokenizer(BASE_MODEL).encode(text)


def test_a_killed_run_resumes_replaces_its_engine_and_stops_on_sigterm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"
    with train(directory, run__steps="50", evaluation__before_training="false") as command:
        command.wait_for(directory / "config.toml")
        assert run(OWN["train"], training_words(settings(directory, run__resume="true"))) == 1
        assert "is being written by another run" in "".join(capsys.readouterr())
        command.wait_for(directory / "checkpoints" / "step_000002" / "manifest.json")
        os.kill(command.process.pid, signal.SIGKILL)
        command.wait()
        command.assert_nothing_left(seconds=30)
    killed_at = len(steps_trained(directory))
    assert killed_at >= 2
    before = metric_rows(directory)
    with train(directory, run__steps="50", run__resume="true") as command:
        # The killed run may have left the trajectories of the step before, without its metrics.
        command.wait_for(directory / "trajectories" / f"step_{killed_at + 1:06d}.jsonl")
        os.kill(_engine_core(command), signal.SIGKILL)  # the one in its place has the weights of the step before
        command.wait_for(directory / "checkpoints" / f"step_{killed_at + 3:06d}" / "manifest.json")
        command.process.send_signal(signal.SIGTERM)
        assert command.wait(60) == 128 + signal.SIGTERM, command.output()
        command.assert_nothing_left()
        assert "resuming from" in command.output()
        assert "restarting engine 0 (1 of 3): the engine was ended by SIGKILL\n" in command.output()
        assert "stopped by SIGTERM" in command.output()
        assert "Traceback" not in command.output()
    trained = steps_trained(directory)
    assert trained == [*range(len(trained))]
    assert len(trained) >= killed_at + 3
    assert metric_rows(directory)[:2] == before[:2]
    # The engine began with the checkpoint's weights, not with the model's.
    resumed = [row for row in metric_rows(directory) if row["step"] >= killed_at and "time/step" in row]
    assert all(row["rollout/staleness_max"] == 0 for row in resumed)
    assert all(row["learner/logprob_gap_max"] < 1e-4 for row in resumed if "learner/logprob_gap_max" in row)
    assert any("learner/logprob_gap_max" in row for row in resumed)
    kept = sorted(int(path.parent.name[-6:]) for path in (directory / "checkpoints").glob("step_*/manifest.json"))
    assert kept in ([last - 1, last] for last in range(killed_at + 3, len(trained) + 2))


@pytest.mark.slow
def test_run_stops_before_a_checkpoint_if_the_engine_has_another_model(tmp_path: Path) -> None:
    """Two float32 implementations differ by rounding, which this limit does not allow."""
    directory = tmp_path / "run"
    with train(directory, learner__max_logprob_gap="1e-12", checkpoint__every_steps="1") as command:
        assert command.wait() == 1
        command.assert_nothing_left()
        assert "engine and learner hold different policies" in command.output()
        assert "learner.verify_weights" in command.output()
    assert steps_trained(directory)[-1] in (0, 1)  # the first step that learned anything
    assert not list((directory / "checkpoints").glob("step_000002*"))


@pytest.mark.parametrize(
    ("victim", "message"),
    [
        ("torl.learner.worker", "learner rank 0"),
        ("engine", "engine"),
        # The pool starts a worker fifteen times, with growing pauses, before it gives up: close to a minute.
        ("serve_sandbox", "sandbox"),
    ],
)
@pytest.mark.slow
def test_a_dead_part_ends_the_run_with_its_name(tmp_path: Path, victim: str, message: str) -> None:
    directory = tmp_path / "run"
    changes = {"engine__max_restarts": "0", "evaluation__before_training": "false"}
    with train(directory, run__steps="50", **changes) as command:
        command.wait_for(directory / "metrics.jsonl", '"time/step"')
        if victim == "serve_sandbox":
            # One dead worker is replaced and its run repeated; a sandbox whose workers keep dying is unusable.
            killer = threading.Thread(target=_keep_killing, args=(command, victim), daemon=True)
            killer.start()
        elif victim == "engine":
            os.kill(_engine_core(command), signal.SIGKILL)
        else:
            os.kill(command.processes(victim)[0], signal.SIGKILL)
        assert command.wait(120) == 1
        command.assert_nothing_left()
        last = [line for line in command.output().splitlines() if line.startswith("error: ")]
        assert len(last) == 1
        assert message in last[0]


def _keep_killing(command: Command, victim: str) -> None:
    """Kill each process at its start, before it executes a call: the pool counts failures in a row."""
    threads = Path(f"/proc/{command.process.pid}/task")
    while command.process.poll() is None:
        for thread in threads.iterdir():
            with contextlib.suppress(OSError):
                for pid in (thread / "children").read_text().split():
                    if victim.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)


def _engine_core(command: Command) -> int:
    """The engine's core renames itself."""
    named = [pid for pid in command.processes() if b"VLLM" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return named[0] if named else command.processes("spawn_main")[0]


def test_mistakes_are_found_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "1", "problem": "1 + 1?", "answer": "2"}\n{"id": "2", "problem": 3}\n')
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "config.toml").write_text("")
    cases: list[tuple[Path, dict[str, str], str]] = [
        (tmp_path / "a", {"model__path": "no/such/model"}, "no/such/model"),
        (tmp_path / "b", {"data__train": str(broken)}, f"{broken}, line 2"),
        (
            tmp_path / "c",
            {"rollout__tools__python__name": "function", "rollout__tools__python__function": "nowhere:f"},
            "nowhere cannot be imported",
        ),
        (tmp_path / "d", {"rollout__prompts_per_step": "1000000"}, "rollout.prompts_per_step is 1000000"),
        (tmp_path / "e", {"rollout__max_response_tokens": "1000000"}, "rollout.max_response_tokens = 1000000"),
        (tmp_path / "f", {"checkpoint__keep_best": "no/such"}, "checkpoint.keep_best = 'no/such'"),
        (taken, {}, "contains a run"),
    ]
    children = multiprocessing.active_children()  # of other tests
    for directory, changes, message in cases:
        assert run(OWN["train"], training_words(settings(directory, **changes))) == 1
        output = "".join(capsys.readouterr())
        assert message in output
        assert "Traceback" not in output
        assert multiprocessing.active_children() == children
        assert directory == taken or not (directory / "config.toml").exists()  # the corrected command may have it


@pytest.mark.slow
def test_interrupted_train_leaves_nothing_alive_and_can_be_repeated(tmp_path: Path) -> None:
    """Its quick sibling is tests/torl/api/test_api_interrupt.py."""
    program = HELPERS / "interrupted_training.py"
    ended = subprocess.run([sys.executable, program, tmp_path / "run"], capture_output=True, text=True, timeout=3600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert "alive: []" in lines, ended.stdout
    interrupted = lines.index("alive: []")
    # It was interrupted while it evaluated; the waits before had ended.
    assert not [line for line in lines[:interrupted] if line.startswith("evaluating") and "done" in line]
    assert "trained" in lines[interrupted:]
