"""Ten steps of a 1.5B shape on one GPU that engine and learner share: they agree, regardless of the memory's owner."""

import json
from pathlib import Path

import pytest
import torch

from cli import ROOT, running
from models import write_shape

DEMO = str(ROOT / "python" / "torl" / "presets" / "demo.toml")
STEPS = 10
CHANGES = {
    "run.steps": str(STEPS),
    "data.template": "torl",
    "rollout.prompts_per_step": "8",
    "rollout.samples_per_prompt": "8",
    "rollout.max_response_tokens": "1024",
    "rollout.max_tool_calls": "2",
    "evaluation.every_steps": "0",
    "evaluation.max_problems": "8",
    "checkpoint.every_steps": "0",
    "engine.dtype": "bfloat16",
    "engine.gpu_memory_utilization": "0.5",
    "engine.sleep_while_learning": "true",
    "selection.groups.zero_variance": "false",
    "algorithm.entropy_bonus": "1e-4",  # random weights solve nothing: without it no group would have a gradient
    "learner.ranks": "1",
    "learner.zero_stage": "2",
    "learner.dtype": "bfloat16",
    "learner.learning_rate": "1e-6",
    "learner.max_row_tokens": "16384",
    "learner.gradient_checkpointing": "true",
    "learner.offload": "while_sampling",
    "learner.verify_weights": "true",
}


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of Qwen2.5-1.5B's shape; it calls no tool, and its log-probabilities are as good as any."""
    return write_shape(tmp_path_factory.mktemp("shape"), hidden=1536, intermediate=8960, layers=28, heads=12, groups=2)


@pytest.mark.timeout(1800)
def test_ten_steps_of_a_real_shape(model_directory: Path, tmp_path: Path) -> None:
    options = CHANGES | {"run.directory": str(tmp_path / "run"), "model.path": str(model_directory)}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    torch.cuda.empty_cache()  # of earlier tests
    free, _ = torch.cuda.mem_get_info()
    with running("torl.train", DEMO, *words, log=tmp_path / "run.log") as command:
        assert command.wait(1700) == 0, command.output()
        command.assert_nothing_left()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "time/step" in row]
    assert len(trained) == STEPS
    measured = [row for row in trained if "learner/logprob_gap_max" in row]
    assert len(measured) == STEPS
    assert max(row["learner/logprob_gap_max"] for row in measured) < 0.3
    assert max(row["learner/logprob_gap_mean"] for row in measured) < 0.02
    assert free - torch.cuda.mem_get_info()[0] < 1e9, "a process of the run still holds GPU memory"
