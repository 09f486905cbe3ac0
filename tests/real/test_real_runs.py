"""Whole runs of pre-trained models: train, evaluate, resume, audit and export, then sample and evaluate the export."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

import torl
import torl_lab
from settings_for_real import precision, settings
from torl.components.hub.shape import ModelShape
from torl.components.text.tokenizer import load_tokenizer
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.placement.ledger import compute_ledger
from torl.run.placement.machine import this_machine
from torl.run.placement.resolve import resolve
from torl.run.records import metric_names as names


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_a_run_trains_resumes_audits_and_exports(
    model: str, directory: Path, template: str, lora: bool, tmp_path: Path
) -> None:
    dtype = precision(model, lora)
    overrides: dict[str, Any] = settings(model, template, tmp_path / "run")
    overrides |= {"engine.dtype": dtype, "learner.dtype": dtype, "model.lora.rank": 8 if lora else 0}
    with watched_memory() as watch:
        run = torl.train("demo", overrides | {"run.steps": 2})
    planned = planned_bytes(overrides, directory)
    print(f"planned {planned / 1e9:.2f} GB, used {watch.most / 1e9:.2f} GB")
    assert 0.75 * planned < watch.most < planned
    resumed = torl.train("demo", overrides | {"run.resume": True})
    assert [row["step"] for row in resumed.metrics if names.TIME_STEP in row] == [0, 1, 2]
    assert all(np.isfinite(row["learner/loss"]) for row in resumed.metrics if "learner/loss" in row)
    evaluated, _ = resumed.metrics.curve(names.evaluation_name("heldout", names.GREEDY_ACCURACY))
    assert evaluated == [0, 3]
    audit = torl_lab.verify(run.directory, logprob_samples=4)
    assert audit.ok, str(audit)
    exported = run.directory / "model"
    assert changed_weights(exported, directory)
    assert load_tokenizer(exported).get_vocab() == load_tokenizer(directory).get_vocab()
    with torl.Policy(
        exported,
        data={"template": template},
        engine={"dtype": dtype},
        rollout={"max_response_tokens": 16},
        evaluation={"max_problems": 2, "samples_per_problem": 1, "greedy": False},
    ) as policy:
        groups = policy.sample(["What is 17 * 23?", "What is 2 to the power of 9?"], samples_per_problem=2)
        evaluation = policy.evaluate("torl:demo/problems/heldout.jsonl")
    assert [len(group.members) for group in groups] == [2, 2]
    assert len(evaluation.groups) == 2
    assert 0 <= evaluation.metrics[names.ACCURACY] <= 1


class MemoryWatch:
    """The memory of this process and its descendants, each page counted once."""

    def __init__(self) -> None:
        self.most = 0
        self.ended = threading.Event()

    def watch(self) -> None:
        while not self.ended.wait(0.5):
            processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
            self.most = max(self.most, sum(map(proportional_bytes, processes)))


def proportional_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it has just exited
        return 0


@contextmanager
def watched_memory() -> Iterator[MemoryWatch]:
    watch = MemoryWatch()
    thread = threading.Thread(target=watch.watch)
    thread.start()
    try:
        yield watch
    finally:
        watch.ended.set()
        thread.join()


def planned_bytes(overrides: dict[str, Any], directory: Path) -> int:
    config = load_config(TrainConfig, find_config("demo"), overrides | {"model.path": str(directory)})
    ledger = compute_ledger(resolve(config, this_machine()), ModelShape.read(directory))
    return sum(ledger.fullest.host.values())


def changed_weights(exported: Path, original: Path) -> list[str]:
    """Return the names of the weights that training has changed, as transformers loads both models."""
    model, before = (AutoModelForCausalLM.from_pretrained(path, dtype="auto") for path in (exported, original))
    weights = dict(before.named_parameters())
    return [key for key, weight in model.named_parameters() if not torch.equal(weight.float(), weights[key].float())]
