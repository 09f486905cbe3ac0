"""Prompts of the reference model by hand, and the settings and models that cannot be combined."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from builders import scored, trajectory
from tokenizers_for_tests import byte_level_bpe
from torl.config import AlgorithmConfig, KlConfig, ModelConfig, TrainConfig, reference_model
from torl.errors import ConfigError
from torl.rollout.model_directory import ModelDirectory, require_same_vocabulary
from torl.training.samples import training_samples
from torl.training.teacher_prompts import with_teacher_prompts
from torl.types import Problem, Prompt, ScoredGroup


def encode(problem: Problem) -> Prompt:
    """Twenty tokens for a problem with a solution."""
    return Prompt(problem, tuple(range(20)) if "boxed" in problem.question else (7,))


def test_response_follows_the_other_prompt() -> None:
    right, wrong = scored(trajectory("\\boxed{1}")), scored(trajectory("a", "b", sample=1), correct=False)
    group = ScoredGroup(right.trajectory.prompt, (right, wrong))
    kl = KlConfig.model_validate({"current_policy": True, "prompt": "custom_components:with_solution"})
    samples = training_samples(group.members)
    own, other = with_teacher_prompts(samples, [group], kl, encode)
    assert own is samples[0]  # without another solution
    seen = other.reference_sample
    assert seen is not None
    assert seen.token_ids.tolist() == [*range(20), *samples[1].token_ids[3:].tolist()]
    assert seen.loss_mask.tolist() == [*[False] * 20, True, False, False, True]
    assert seen.loss_mask.sum() == other.loss_mask.sum()
    assert with_teacher_prompts(samples, [group], KlConfig(), encode) == samples


@pytest.mark.parametrize(
    ("kl", "message"),
    [
        ({"current_policy": True, "path": "a", "prompt": "custom_components:with_solution"}, "cannot be combined"),
        ({"current_policy": True}, "current_policy requires prompt"),
    ],
)
def test_contradictory_reference_is_refused(kl: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        KlConfig.model_validate(kl)


def test_agent_changes_prompts_itself() -> None:
    config = {
        "model": {"path": "m"},
        "run": {"directory": "r", "steps": 1},
        "data": {"train": "problems.jsonl"},
        "rollout": {"format": "hermes", "agent": {"command": "true"}},
        "algorithm": {"kl": {"coefficient": 1.0, "prompt": "custom_components:with_solution"}},
    }
    with pytest.raises(ValidationError, match=r"algorithm\.kl\.prompt cannot be combined with rollout\.agent"):
        TrainConfig.model_validate(config)


@pytest.mark.parametrize(
    ("kl", "rank", "path"),
    [
        ({}, 0, None),
        ({"coefficient": 1.0}, 0, "policy"),
        ({"coefficient": 1.0}, 8, None),  # the policy without its adapters
        ({"coefficient": 1.0, "path": "teacher"}, 8, "teacher"),
        ({"coefficient": 1.0, "current_policy": True, "prompt": "custom_components:with_solution"}, 0, None),
    ],
)
def test_reference_model_that_is_loaded(kl: dict[str, Any], rank: int, path: str | None) -> None:
    algorithm = AlgorithmConfig.model_validate({"kl": kl})
    model = ModelConfig.model_validate({"path": "policy", "lora": {"rank": rank}})
    found = reference_model(algorithm, model)
    assert (found and found.path) == path


def write_directory(directory: Path, *tokens: str) -> ModelDirectory:
    """A model whose vocabulary has further tokens."""
    tokenizer = byte_level_bpe(300)
    tokenizer.add_tokens(list(tokens))
    tokenizer.save_pretrained(directory)
    (directory / "model.safetensors").touch()
    return ModelDirectory(directory, tokenizer, {})


def test_teacher_must_know_the_vocabulary(tmp_path: Path) -> None:
    small, large = write_directory(tmp_path / "small"), write_directory(tmp_path / "large", "<new>")
    require_same_vocabulary(small, str(large.path), "algorithm.kl.path")
    message = r"algorithm\.kl\.path = .*small: 1 tokens of .*large are missing or have other ids, such as '<new>'"
    with pytest.raises(ConfigError, match=message):
        require_same_vocabulary(large, str(small.path), "algorithm.kl.path")
