"""Prompts of the reference model by hand, and the settings and models that cannot be combined."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from builders import scored, trajectory
from tokenizers_for_tests import byte_level_bpe
from torl.base.errors import ConfigError
from torl.base.types import Problem, Prompt, ScoredGroup, TrainingSample
from torl.rollout.model_directory import ModelDirectory, require_same_vocabulary
from torl.run.config import AlgorithmConfig, KlConfig, ModelConfig, TrainConfig, reference_model
from torl.training.experience import with_teacher_prompts
from torl.training.samples import prepare_samples, training_samples


def encode(problem: Problem) -> Prompt:
    """Twenty tokens for a problem with a solution."""
    return Prompt(problem, tuple(range(20)) if "boxed" in problem.question else (7,))


def test_response_follows_the_other_prompt() -> None:
    right, wrong = scored(trajectory("\\boxed{1}")), scored(trajectory("a", "b", sample=1), correct=False)
    group = ScoredGroup(right.trajectory.prompt, (right, wrong))
    kl = KlConfig.model_validate({"reference": "current_policy", "prompt": "custom_components:with_solution"})
    samples = training_samples(group.members)
    (own, other), too_long = with_teacher_prompts(samples, [group], kl, encode, max_tokens=24)
    assert too_long == 0
    assert own is samples[0]  # without another solution
    seen = other.reference_sample
    assert seen is not None
    assert seen.token_ids.tolist() == [*range(20), *samples[1].token_ids[3:].tolist()]
    assert seen.loss_mask.tolist() == [*[False] * 20, True, False, False, True]
    assert seen.loss_mask.sum() == other.loss_mask.sum()
    assert with_teacher_prompts(samples, [group], KlConfig(), encode, max_tokens=24) == (samples, 0)


def test_a_sample_without_room_after_the_other_prompt_keeps_its_own() -> None:
    right, wrong = scored(trajectory("\\boxed{1}")), scored(trajectory("a", "b", sample=1), correct=False)
    group = ScoredGroup(right.trajectory.prompt, (right, wrong))
    kl = KlConfig.model_validate({"reference": "current_policy", "prompt": "custom_components:with_solution"})
    samples = training_samples(group.members)
    found, too_long = with_teacher_prompts(samples, [group], kl, encode, max_tokens=23)  # it would have 20 + 4
    assert too_long == 1
    assert all(sample is before for sample, before in zip(found, samples, strict=True))


@pytest.mark.parametrize(("max_prompt_tokens", "too_long"), [(19, 1), (20, 0)])
def test_the_longest_planned_sample_is_the_limit_of_teacher_prompts(max_prompt_tokens: int, too_long: int) -> None:
    """A run with responses of four tokens annotates no longer sample, and counts the responses that would be longer."""
    config = TrainConfig.model_validate(
        {
            "model": {"path": "m"},
            "run": {"directory": "r", "steps": 1},
            "data": {"train": "problems.jsonl", "max_prompt_tokens": max_prompt_tokens},
            "rollout": {"max_response_tokens": 4},
            "algorithm": {
                "estimator": "distillation",
                "kl": {"reference": "current_policy", "prompt": "custom_components:with_solution"},
            },
        }
    )
    longest = 0

    async def annotate(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        nonlocal longest
        longest = max(len(sample.reference_sample or sample) for sample in samples)
        zeros = [np.zeros(len(sample), np.float32) for sample in samples]
        return [replace(each, old_logprobs=zero, ref_logprobs=zero) for each, zero in zip(samples, zeros, strict=True)]

    right, wrong = scored(trajectory("\\boxed{1}")), scored(trajectory("a", "b", sample=1), correct=False)
    group = ScoredGroup(right.trajectory.prompt, (right, wrong))
    _, metrics = asyncio.run(prepare_samples([group], annotate, config, encode, config.longest_sample))
    assert metrics == {"data/long_teacher_prompts": too_long}
    assert longest <= config.longest_sample


def test_current_policy_after_its_own_prompt_is_refused_as_a_reference() -> None:
    with pytest.raises(ValidationError, match="reference = 'current_policy' requires prompt"):
        KlConfig.model_validate({"reference": "current_policy"})


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
        ({"coefficient": 1.0, "reference": "teacher"}, 8, "teacher"),
        ({"coefficient": 1.0, "reference": "current_policy", "prompt": "custom_components:with_solution"}, 0, None),
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
    require_same_vocabulary(small, str(large.path), "algorithm.kl.reference")
    message = r"algorithm\.kl\.reference = .*small: 1 tokens of .*large are missing or have other ids, such as '<new>'"
    with pytest.raises(ConfigError, match=message):
        require_same_vocabulary(large, str(small.path), "algorithm.kl.reference")
