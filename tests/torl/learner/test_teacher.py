"""The log-probabilities of reference models through the learner's processes: a teacher, and other prompts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from learner_fixtures import TEMPERATURE, plain_logprobs, random_samples, start_learner, write_tiny_model
from torl.base.types import TrainingSample
from torl.run.config import AlgorithmConfig, LoraConfig

pytestmark = pytest.mark.usefixtures("forked_ranks")

EXTRA = 6  # tokens of the teacher's prompt, in addition to the sample's


def behind_another_prompt(samples: list[TrainingSample]) -> list[TrainingSample]:
    """Every second sample has more tokens before it for the reference model; one sample has no loss."""
    generator = np.random.default_rng(0)
    found = [replace(samples[0], loss_mask=np.zeros_like(samples[0].loss_mask)), *samples[1:]]
    for index in range(0, len(found), 2):
        sample = samples[index]
        zeros = np.zeros(EXTRA)
        longer = TrainingSample(
            np.concatenate([generator.integers(0, 97, EXTRA).astype(np.int32), sample.token_ids]),
            np.concatenate([zeros.astype(np.bool_), sample.loss_mask]),
            np.concatenate([zeros.astype(np.float32), sample.rollout_logprobs]),
        )
        found[index] = replace(found[index], reference_sample=longer)
    return found


def expected_logprobs(directory: Path, samples: list[TrainingSample]) -> list[np.ndarray[Any, Any]]:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    with torch.no_grad():
        for sample in samples:
            seen = sample.reference_sample or sample
            logprobs = np.pad(plain_logprobs(model, seen, TEMPERATURE).numpy(), (1, 0))[-len(sample) :]
            found.append(np.where(sample.loss_mask, logprobs, 0))
    return found


@pytest.mark.parametrize(
    ("zero_stage", "ranks", "lora", "current"), [(0, 1, 0, False), (2, 2, 4, False), (3, 2, 0, False), (2, 2, 4, True)]
)
async def test_reference_logprobs_equal_plain_torch(
    zero_stage: int, ranks: int, lora: int, current: bool, tmp_path: Path
) -> None:
    policy, teacher = write_tiny_model(tmp_path / "policy"), write_tiny_model(tmp_path / "teacher", seed=1)
    source = (
        {"reference": "current_policy", "prompt": "custom_components:with_solution"}
        if current
        else {"reference": str(teacher)}
    )
    samples = behind_another_prompt(random_samples(7, seed=3))
    learner = await start_learner(
        policy,
        tmp_path / "logs",
        algorithm=AlgorithmConfig.model_validate({"kl": {"coefficient": 1.0, **source}, "epochs": 2}),
        lora=LoraConfig(rank=lora),
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=60,
    )
    async with learner:
        prepared = await learner.annotate(samples)
        await learner.update(prepared, step=0)
        later = await learner.annotate(samples)
        await learner.export(tmp_path / "trained")
    for expected, found in (
        (expected_logprobs(policy if current else teacher, samples), prepared),
        (expected_logprobs(tmp_path / "trained" if current else teacher, samples), later),
    ):
        for logprobs, sample in zip(expected, found, strict=True):
            assert sample.ref_logprobs is not None
            np.testing.assert_allclose(sample.ref_logprobs, logprobs, atol=2e-5)
            assert sample.reference_sample is None
    own_prompts = [replace(sample, reference_sample=None) for sample in samples]
    for logprobs, sample in zip(expected_logprobs(policy, own_prompts), prepared, strict=True):
        assert sample.old_logprobs is not None
        np.testing.assert_allclose(sample.old_logprobs, logprobs, atol=2e-5)
