"""Fine-tuning of pre-trained models on written calls: losses against transformers, audit and export."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

import torl
import torl_lab
from settings_for_real import precision
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.run.config.loading import find_config, load_config
from torl.training.examples import Examples, batch_samples

VALIDATION_LOSS = "validation/loss"


def written_calls(path: Path) -> Path:
    """Solutions in ToRL's format, whose results carry no loss."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(16):
            first, second = 1231 + 97 * number, 345 + 31 * number
            code = f"```python\nprint({first} * {second})\n```\n```output\n{first * second}\n```\n"
            response = f"{code}The answer is $\\boxed{{{first * second}}}$."
            file.write(json.dumps({"problem": f"Find {first} times {second}.", "response": response}) + "\n")
    return path


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_fine_tuning_lowers_the_loss_of_transformers(
    model: str, directory: Path, template: str, lora: bool, tmp_path: Path
) -> None:
    dtype = precision(model, lora)
    tolerance = 0.02 if dtype == "bfloat16" else 1e-4
    overrides: dict[str, Any] = {
        "model.path": model,
        "model.lora.rank": 8 if lora else 0,
        "data.template": template,
        "data.evaluation": {},
        "run.steps": 3,
        "run.directory": str(tmp_path / "run"),
        "finetune.train": str(written_calls(tmp_path / "train.jsonl")),
        "finetune.validation_fraction": 0.25,
        "finetune.batch_size": 4,
        "learner.dtype": dtype,
        "learner.learning_rate": 1e-3 if lora else 3e-5,
        "evaluation.every_steps": 3,
        "checkpoint.every_steps": 0,
    }
    run = torl.finetune("demo", overrides)
    config = load_config(FinetuneConfig, find_config("demo"), overrides)
    examples = Examples.read(config, ModelDirectory.open(model, config.rollout.tools))
    before, after = run.metrics[VALIDATION_LOSS]
    assert after < before - 0.1
    assert before == pytest.approx(loss_of_transformers(directory, examples, dtype), abs=tolerance)
    assert after == pytest.approx(loss_of_transformers(run.directory / "model", examples, dtype), abs=tolerance)
    audit = torl_lab.verify(run.directory)
    assert audit.ok, str(audit)


def loss_of_transformers(path: Path, examples: Examples, dtype: str) -> float:
    """Return the mean cross-entropy of the trained validation tokens, of a model that transformers loads."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
    losses = []
    for sample in batch_samples(examples.validation):
        ids, is_trained = torch.from_numpy(sample.token_ids).long(), torch.from_numpy(sample.loss_mask)
        with torch.no_grad():
            logits = loaded(input_ids=ids[None]).logits[0, :-1].float()
        losses.append(cross_entropy(logits, ids[1:], reduction="none")[is_trained[1:]])
    return float(torch.cat(losses).mean())
