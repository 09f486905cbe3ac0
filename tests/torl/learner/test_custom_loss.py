"""A custom policy loss with a reference model, the engine's ratio and a quantile of the whole batch, by plain torch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from learner_fixtures import (
    GRADIENT_CLIP,
    TEMPERATURE,
    plain_logprobs,
    random_samples,
    start_learner,
    write_tiny_model,
)
from torl.base.types import TrainingSample
from torl.run.config import AlgorithmConfig

pytestmark = pytest.mark.usefixtures("forked_ranks")

FRACTION, PULL = 0.3, 0.5
ALGORITHM = AlgorithmConfig.model_validate(
    {"policy_loss": {"name": "custom_components:near_reference", "fraction": FRACTION, "pull": PULL}}
)


def near_policy(samples: list[TrainingSample], model: torch.nn.Module) -> list[TrainingSample]:
    """Rollout log-probabilities near the model's own, so that no ratio is extreme."""
    generator = np.random.default_rng(0)
    found = []
    for sample in samples:
        with torch.no_grad():
            logprobs = np.pad(plain_logprobs(model, sample, TEMPERATURE).numpy(), (1, 0))
        noise = generator.normal(0, 0.3, len(sample))
        found.append(
            replace(sample, rollout_logprobs=np.where(sample.loss_mask, logprobs + noise, 0).astype(np.float32))
        )
    return found


def plain_entropies(model: torch.nn.Module, sample: TrainingSample) -> Tensor:
    ids = torch.from_numpy(sample.token_ids).long()[None]
    distribution = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float() / TEMPERATURE, -1)
    return -(distribution.exp() * distribution).sum(-1)


def plain_loss_and_norm(model: torch.nn.Module, samples: list[TrainingSample]) -> tuple[float, float]:
    """One token at a time over the whole batch; the reference model is the policy itself, so its term is 0."""
    masks = [torch.from_numpy(sample.loss_mask[1:]) for sample in samples]
    entropies = torch.cat([plain_entropies(model, each)[mask] for each, mask in zip(samples, masks, strict=True)])
    threshold = entropies.detach().quantile(1 - FRACTION)
    losses = []
    for sample, mask in zip(samples, masks, strict=True):
        logprobs = plain_logprobs(model, sample, TEMPERATURE)
        ratio = (logprobs - torch.from_numpy(sample.rollout_logprobs[1:])).exp()
        losses.append(-(ratio * torch.from_numpy(sample.advantages[1:]))[mask])  # type: ignore[index]
    loss = (torch.cat(losses) * (entropies >= threshold)).sum() / len(entropies)
    loss.backward()
    return float(loss.detach()), float(torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP))


@pytest.mark.parametrize(("zero_stage", "ranks", "max_row_tokens"), [(0, 1, 4096), (2, 2, 41)])
async def test_loss_of_a_quantile_equals_plain_torch(
    zero_stage: int, ranks: int, max_row_tokens: int, tmp_path: Path
) -> None:
    directory = write_tiny_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    samples = near_policy(random_samples(9, seed=4), model)
    loss, norm = plain_loss_and_norm(model, samples)
    learner = await start_learner(
        directory,
        tmp_path / "logs",
        algorithm=ALGORITHM,
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=max_row_tokens,
    )
    async with learner:
        prepared = await learner.annotate(samples)
        for sample in prepared:  # computed as declared, and nothing else
            assert sample.ref_logprobs is not None
            assert sample.entropies is not None
            assert (sample.old_logprobs, sample.values) == (None, None)
        metrics = await learner.update(prepared, step=0)
        with pytest.raises(ValueError, match="sample 0 has no ref_logprobs"):
            await learner.update(samples, step=1)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(norm, rel=1e-5)


async def test_old_logprobs_and_entropies_take_one_pass(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    algorithm = AlgorithmConfig.model_validate({**ALGORITHM.model_dump(), "epochs": 2})
    samples = random_samples(5, seed=5)
    async with await start_learner(directory, tmp_path / "logs", algorithm=algorithm, zero_stage=0) as learner:
        prepared = await learner.annotate(samples)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for sample, each in zip(samples, prepared, strict=True):
            assert each.old_logprobs is not None
            assert each.entropies is not None
            mask = sample.loss_mask
            expected = plain_logprobs(model, sample, TEMPERATURE).numpy()[mask[1:]]
            np.testing.assert_allclose(each.old_logprobs[mask], expected, atol=1e-5)
            np.testing.assert_array_equal(each.old_logprobs, each.ref_logprobs)
            expected = plain_entropies(model, sample).numpy()[mask[1:]]
            np.testing.assert_allclose(each.entropies[mask], expected, atol=1e-5)
            assert not each.entropies[~mask].any()


async def test_collision_probabilities_are_sums_of_squares(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    algorithm = AlgorithmConfig(estimator="optimal_token_baseline")  # type: ignore[arg-type]
    samples = random_samples(5, seed=6)
    async with await start_learner(directory, tmp_path / "logs", algorithm=algorithm, zero_stage=0) as learner:
        prepared = await learner.annotate(samples)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    for sample, each in zip(samples, prepared, strict=True):
        assert each.old_logprobs is not None
        assert each.collision_probs is not None
        mask = sample.loss_mask
        token_ids = torch.from_numpy(sample.token_ids).long()[None]
        with torch.no_grad():
            probabilities = (model(token_ids).logits[0, :-1].double() / TEMPERATURE).softmax(-1)
        np.testing.assert_allclose(each.collision_probs[mask], probabilities.square().sum(-1)[mask[1:]], rtol=1e-5)
        assert not each.collision_probs[~mask].any()
