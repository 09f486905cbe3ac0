"""Every term of the loss through the real learner: equal to plain torch in one process, on all ranks and stages."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import reference
from builders import scored, scored_group
from learner_fixtures import (
    GRADIENT_CLIP,
    LEARNING_RATE,
    TEMPERATURE,
    plain_logprobs,
    random_samples,
    read_weights,
    relative_distance,
    start_learner,
    write_tiny_model,
)
from torl.base.types import TrainingSample, UpdateNumbers
from torl.learner.checkpoint.directory import checkpoint_path
from torl.run.config import AlgorithmConfig, CriticConfig
from torl.training.samples import with_advantages

SAMPLES = random_samples(8, seed=11, longest=24)
CLIP = (0.1, 0.15)
BOUNDS = (0.5, 1.5)
FIXED_LENGTH = 30

pytestmark = pytest.mark.usefixtures("forked_ranks")


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with tied embeddings."""
    return write_tiny_model(tmp_path_factory.mktemp("learner-model"))


def chosen(loss: str, aggregation: str, **terms: Any) -> AlgorithmConfig:
    """An algorithm of these names, with the options of these tests."""
    clip = {} if loss == "reinforce" else {"clip_low": CLIP[0], "clip_high": CLIP[1]}
    length = {"length": FIXED_LENGTH} if aggregation == "fixed_length" else {}
    if (name := terms.get("importance_correction")) is not None:
        bounds = {"high": BOUNDS[1]} if name == "tis" else {"low": BOUNDS[0], "high": BOUNDS[1]}
        terms["importance_correction"] = {"name": name, **bounds}
    return AlgorithmConfig.model_validate(
        {"policy_loss": {"name": loss, **clip}, "aggregation": {"name": aggregation, **length}, **terms}
    )


def load(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


def near(samples: list[TrainingSample], directory: Path) -> list[TrainingSample]:
    """With the engine's logprobs not far from the model's: some weights are inside the bounds and some outside."""
    generator = np.random.default_rng(0)
    model = load(directory)
    found = []
    for sample in samples:
        logprobs = np.concatenate([[0], plain_logprobs(model, sample, TEMPERATURE).detach().numpy()])
        noisy = logprobs + generator.normal(0, 0.3, len(sample))
        found.append(replace(sample, rollout_logprobs=np.where(sample.loss_mask, noisy, 0).astype(np.float32)))
    return found


def plain_updates(directory: Path, samples: list[TrainingSample], algorithm: AlgorithmConfig, updates: int) -> Any:
    """The optimizer steps in plain torch, one sample at a time, the losses by the formulas of `reference.py`."""
    model, frozen = load(directory), load(directory)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.999), weight_decay=0.01)
    old = [plain_logprobs(model, sample, TEMPERATURE).detach() for sample in samples]
    ref = [plain_logprobs(frozen, sample, TEMPERATURE).detach() for sample in samples]
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    report: list[dict[str, float]] = []
    for _ in range(updates):
        optimizer.zero_grad()
        total = 0.0
        for sample, old_T, ref_T, count in zip(samples, old, ref, counts, strict=True):
            mask = torch.from_numpy(sample.loss_mask[1:])
            logits = model(input_ids=torch.from_numpy(sample.token_ids).long()[None]).logits[0, :-1] / TEMPERATURE
            distribution = torch.log_softmax(logits.float(), -1)
            logprobs = distribution.gather(-1, torch.from_numpy(sample.token_ids).long()[1:, None]).squeeze(-1)[mask]
            entropy = -(distribution.exp() * distribution).sum(-1)[mask]
            assert sample.advantages is not None
            advantages = torch.from_numpy(sample.advantages[1:])[mask]
            rollout = torch.from_numpy(sample.rollout_logprobs[1:])[mask]
            loss = _loss(algorithm, logprobs, old_T[mask], advantages, rollout)
            x = ref_T[mask] - logprobs
            loss = (
                loss
                + algorithm.kl.coefficient
                * {"k1": -x, "k2": x**2 / 2, "k3": x.exp() - x - 1}[algorithm.kl.estimator.name]
            )
            loss = loss - algorithm.entropy_bonus * entropy
            divisor = {
                "token": sum(counts),
                "sequence": count * len(samples),
                "fixed_length": FIXED_LENGTH * len(samples),
            }[algorithm.aggregation.name]
            part = loss.sum() / divisor
            part.backward()
            total += float(part.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP))
        optimizer.step()
        report.append({"loss": total, "gradient_norm": norm})
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}, report


def _loss(algorithm: AlgorithmConfig, logprobs: Tensor, old: Tensor, advantages: Tensor, rollout: Tensor) -> Tensor:
    ratio = (logprobs - old).exp()
    if algorithm.policy_loss.name == "gspo":
        ratio = (logprobs - old).mean().exp().detach() * (logprobs - logprobs.detach()).exp()
    kept = ratio.clamp(1 - CLIP[0], 1 + CLIP[1])
    loss = torch.maximum(-ratio * advantages, -kept * advantages)
    if algorithm.policy_loss.name == "cispo":
        loss = -kept.detach() * advantages * logprobs
    if algorithm.policy_loss.name == "reinforce":
        loss = -advantages * logprobs
    if algorithm.importance_correction is None:
        return loss
    tokens = [
        reference.ReferenceToken(0, 0.0, old_logprob, 0.0, rollout_logprob)
        for old_logprob, rollout_logprob in zip(old.tolist(), rollout.tolist(), strict=True)
    ]
    weights = reference.importance_weights(algorithm.importance_correction.name, tokens, *BOUNDS)
    return loss * torch.tensor(weights)


def require_logprobs_of_token(token: int, sample: TrainingSample, other: TrainingSample, directory: Path) -> None:
    """The log-probabilities of one token at the position of each sampled token are those of plain torch."""
    ids = torch.from_numpy(sample.token_ids).long()
    logits = load(directory)(input_ids=ids[None]).logits[0, :-1].detach().float() / TEMPERATURE
    assert other.old_logprobs is not None
    expected = torch.log_softmax(logits, -1)[:, token].numpy() * sample.loss_mask[1:]
    np.testing.assert_allclose(other.old_logprobs[1:], expected, atol=2e-5)


def require_numbers(
    recorded: dict[int, UpdateNumbers | None], samples: list[TrainingSample], weights: Any, directory: Path
) -> None:
    """The recorded numbers are those of plain torch before the third update."""
    model = load(directory)
    model.load_state_dict(weights, strict=False)
    assert sorted(recorded) == [0, 2, 4, 6]
    for index, numbers in recorded.items():
        sample = samples[index]
        assert numbers is not None
        assert sample.advantages is not None
        assert sample.old_logprobs is not None
        assert numbers.update == 2
        expected = plain_logprobs(model, sample, TEMPERATURE).detach().numpy()[sample.loss_mask[1:]]
        np.testing.assert_allclose(numbers.arrays["learner_logprobs"], expected, atol=2e-5)
        np.testing.assert_array_equal(numbers.arrays["old_logprobs"], sample.old_logprobs[sample.loss_mask])
        np.testing.assert_array_equal(numbers.arrays["advantages"], sample.advantages[sample.loss_mask])
        assert (numbers.arrays["entropies"] > 0).all()


# Every loss, aggregation, correction, KL estimate, stage and number of ranks at least once, all of them with several
# updates on the same samples, so that ratios are not 1; rows of 30 tokens hold one or two samples, 4,096 hold all.
@pytest.mark.parametrize(
    ("loss", "aggregation", "terms", "zero_stage", "ranks", "max_row_tokens"),
    [
        ("clipped", "sequence", {"kl": {"coefficient": 0.5, "estimator": "k3"}}, 0, 2, 30),
        ("gspo", "sequence", {"importance_correction": "tis"}, 1, 1, 4096),
        ("gspo", "token", {"importance_correction": "mis"}, 3, 2, 30),
        ("cispo", "fixed_length", {"importance_correction": "icepop"}, 2, 2, 30),
        ("reinforce", "fixed_length", {"kl": {"coefficient": 0.5, "estimator": "k2"}}, 3, 2, 4096),
        ("clipped", "token", {"entropy_bonus": 0.3, "kl": {"coefficient": 0.2}}, 3, 1, 30),
    ],
)
async def test_updates_equal_plain_torch(
    loss: str,
    aggregation: str,
    terms: dict[str, Any],
    zero_stage: int,
    ranks: int,
    max_row_tokens: int,
    model_directory: Path,
    tmp_path: Path,
) -> None:
    algorithm = chosen(loss, aggregation, epochs=3, **terms)
    samples = near(SAMPLES, model_directory)
    expected, reports = plain_updates(model_directory, samples, algorithm, 3)
    learner = await start_learner(
        model_directory,
        tmp_path / "logs",
        algorithm=algorithm,
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=max_row_tokens,
    )
    async with learner:
        prepared = await learner.annotate(samples)
        assert all(sample.old_logprobs is not None for sample in prepared)
        assert all((sample.ref_logprobs is not None) == algorithm.needs_reference for sample in prepared)
        for sample, other in zip(prepared, await learner.logprobs(samples, step=0, token=5), strict=True):
            require_logprobs_of_token(5, sample, other, model_directory)
        recorded: dict[int, UpdateNumbers | None] = dict.fromkeys(range(0, len(prepared), 2))
        report = await learner.update(prepared, step=0, recorded=recorded)
        await learner.export(tmp_path / "model")
    assert report["updates"] == 3
    require_numbers(recorded, prepared, plain_updates(model_directory, samples, algorithm, 2)[0], model_directory)
    assert report["loss"] == pytest.approx(np.mean([row["loss"] for row in reports]), rel=1e-6, abs=1e-6)
    # From the second update on, of weights that AdamW has moved (below: 1e-5): processors differ by 1.1e-6 here.
    assert report["gradient_norm"] == pytest.approx(np.mean([row["gradient_norm"] for row in reports]), rel=3e-6)
    # Three steps of AdamW make more of a rounding where a gradient is near 0.
    assert relative_distance(read_weights(tmp_path / "model"), expected) < 1e-5
    assert report["approximate_kl"] > 0
    if terms.get("importance_correction") in ("icepop", "mis"):
        assert 0 < report["importance_masked"] < 1
    if algorithm.needs_reference:
        assert report["reference_kl"] > 0


async def test_zero_advantage_samples_are_skipped_without_effect(model_directory: Path, tmp_path: Path) -> None:
    """Half of the trajectories are empty: the step is the whole batch's, in fewer rows. An empty batch has no step."""
    half = [
        sample if index % 2 else replace(sample, advantages=np.zeros_like(sample.rollout_logprobs))
        for index, sample in enumerate(SAMPLES)
    ]
    expected, reports = plain_updates(model_directory, half, chosen("clipped", "token"), 1)
    async with await start_learner(model_directory, tmp_path / "logs", zero_stage=1) as learner:
        report = await learner.update(half, step=0)
        assert report["samples"] == 4
        assert report["loss"] == pytest.approx(reports[0]["loss"], rel=1e-6)
        await learner.export(tmp_path / "one")
        nothing = [replace(sample, advantages=np.zeros_like(sample.rollout_logprobs)) for sample in SAMPLES]
        with pytest.raises(ValueError, match="sample 0 has no advantages"):
            await learner.update([replace(sample, advantages=None) for sample in SAMPLES], step=0)
        assert await learner.update([], step=1) == {"updates": 0, "seconds": pytest.approx(0, abs=1)}
        assert await learner.update(nothing, step=1) == {"updates": 0, "seconds": pytest.approx(0, abs=1)}
        await learner.export(tmp_path / "two")
    assert relative_distance(read_weights(tmp_path / "one"), expected) < 1e-6
    assert relative_distance(read_weights(tmp_path / "two"), read_weights(tmp_path / "one")) == 0


# --- the critic -------------------------------------------------------------------------------------------------------


def plain_critic(
    directory: Path, samples: list[TrainingSample], critic: CriticConfig
) -> tuple[list[float], list[Tensor]]:
    """Value updates in plain torch: the loss of each, and the values afterwards."""
    trunk = load(directory).base_model
    head = torch.nn.Linear(32, 1)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    parameters = [*trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=critic.learning_rate, betas=(0.9, 0.999), weight_decay=0.01)

    def values(sample: TrainingSample) -> Tensor:
        hidden = trunk(input_ids=torch.from_numpy(sample.token_ids).long()[None]).last_hidden_state[0, :-1]
        return head(hidden).squeeze(-1)[torch.from_numpy(sample.loss_mask[1:])]

    total = sum(int(sample.loss_mask.sum()) for sample in samples)
    losses = []
    for _ in range(critic.optimizer_steps):
        optimizer.zero_grad()
        loss = 0.0
        for sample in samples:
            assert sample.returns is not None
            assert sample.values is not None
            mask = sample.loss_mask
            targets, old = torch.from_numpy(sample.returns[mask]), torch.from_numpy(sample.values[mask])
            found = values(sample)
            errors = (found - targets) ** 2
            if critic.value_clip:
                kept = old + (found - old).clamp(-critic.value_clip, critic.value_clip)
                errors = torch.maximum(errors, (kept - targets) ** 2)
            part = errors.sum() / 2 / total
            part.backward()
            loss += float(part.detach())
        torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP)
        optimizer.step()
        losses.append(loss)
    with torch.no_grad():
        return losses, [values(sample) for sample in samples]


@pytest.mark.parametrize(("zero_stage", "ranks", "value_clip"), [(0, 1, 0.0), (2, 2, 0.01), (3, 2, 0.2)])
async def test_the_critic_equals_plain_torch_and_resumes(
    zero_stage: int, ranks: int, value_clip: float, model_directory: Path, tmp_path: Path
) -> None:
    critic = CriticConfig(learning_rate=2e-3, epochs=4, value_clip=value_clip, pretrain_steps=1)
    algorithm = AlgorithmConfig.model_validate(
        {"estimator": {"name": "ppo", "gae_lambda": 0.9}, "normalize_advantages": True}
    )
    groups = [scored_group(scored(reward=1.0), scored(reward=-1.0)) for _ in range(4)]
    settings = {
        "algorithm": algorithm,
        "critic": critic,
        "zero_stage": zero_stage,
        "ranks": ranks,
        "max_row_tokens": 60,
    }
    seconds = {"seconds": 0.0, "update_seconds": 0.0, "critic_update_seconds": 0.0}

    async def step(learner: Any, number: int) -> tuple[list[TrainingSample], dict[str, float]]:
        prepared = with_advantages(await learner.annotate(SAMPLES), groups, algorithm)
        return prepared, await learner.update(prepared, step=number)

    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        before, first = await step(learner, 0)
        assert first["updates"] == 0  # the critic's head start
        assert all(not sample.values.any() for sample in before)
        losses, values = plain_critic(model_directory, before, critic)
        assert first["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-6)
        await learner.save_checkpoint(checkpoint_path(tmp_path, 1), {})
        after, second = await step(learner, 1)
        for sample, expected in zip(after, values, strict=True):
            np.testing.assert_allclose(sample.values[sample.loss_mask], expected, atol=2e-5)
        assert second["updates"] == 1
        assert second["critic_explained_variance"] > 0 > math.log(second["critic_loss"] / losses[0])
        await learner.load_checkpoint(checkpoint_path(tmp_path, 1))
        _, again = await step(learner, 1)
    assert again | seconds == second | seconds
