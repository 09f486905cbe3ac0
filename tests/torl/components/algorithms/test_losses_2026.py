"""The losses of 2026 against their formulas in plain loops, and rules that hold for every registered loss."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torl.components.algorithms.losses import (
    CORRECTIONS,
    KL_ESTIMATORS,
    POLICY_LOSSES,
    BatchTokens,
    CorrectionInputs,
    LossInputs,
)
from torl.components.algorithms.losses.correction import GeometricBounds, IcepopBounds, MisBounds
from torl.components.algorithms.losses.entropy_control import covariances
from torl.components.algorithms.requirements import requirements_of
from torl.run.config import AlgorithmConfig

OPTIONS: Mapping[str, Mapping[str, Any]] = {"sequence_masked": {"threshold": 0.1}}
"""The options that have no default."""
Values = Sequence[float]


def batch(seed: int, sequences: int = 6, longest: int = 9) -> LossInputs:
    """Ragged sequences with observations between sampled tokens, in float64, with ratios beyond every bound."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest, sequences)
    owner = np.repeat(np.arange(sequences), lengths)
    count = len(owner)
    old = -3 * generator.random(count)
    spread = generator.choice([0.05, 0.5, 2.0], count)
    advantages = generator.normal(size=sequences)[owner] * generator.choice([0.0, 1.0], sequences, p=[0.1, 0.9])[owner]
    return LossInputs(
        torch.tensor(np.minimum(old + spread * generator.normal(size=count), -1e-3)),
        torch.tensor(old),
        torch.tensor(advantages),
        torch.tensor(generator.random(count) < 0.75),
        torch.tensor(owner),
        torch.tensor(np.minimum(old + 0.3 * generator.normal(size=count), -1e-3)),
        torch.tensor(generator.random(count)),
        torch.tensor(old + 0.5 * generator.normal(size=count)),
        torch.tensor((generator.random(count) < 0.3).astype(np.float64)),
    )


def options_of(name: str) -> Mapping[str, Any]:
    return OPTIONS.get(name, {})


def rows(inputs: LossInputs) -> dict[int, list[int]]:
    """The places of the sampled tokens of each sequence."""
    found: dict[int, list[int]] = defaultdict(list)
    for place, (sampled, owner) in enumerate(zip(inputs.loss_mask, inputs.sequences, strict=True)):
        if sampled:
            found[int(owner)].append(place)
    return found


# --- references: one token at a time, from the formulas ---------------------------------------------------------------


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def clipped_token(ratio: float, advantage: float) -> float:
    return max(-ratio * advantage, -clip(ratio, 0.8, 1.2) * advantage)


def sapo(inputs: LossInputs) -> dict[int, float]:
    found = {}
    for places in rows(inputs).values():
        for t in places:
            advantage = float(inputs.advantages[t])
            tau = 1.0 if advantage > 0 else 1.05
            ratio = math.exp(float(inputs.logprobs[t] - inputs.old_logprobs[t]))
            found[t] = -4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage
    return found


def vespo(inputs: LossInputs) -> dict[int, float]:
    found = {}
    for places in rows(inputs).values():
        log_weight = sum(float(inputs.logprobs[t] - inputs.rollout_logprobs[t]) for t in places)
        weight = math.exp(clip(log_weight, math.log(1e-8), 20))
        for t in places:
            advantage = float(inputs.advantages[t])
            power, decay = (2.0, 3.0) if advantage >= 0 else (3.0, 2.0)
            phi = math.exp(decay) * weight**power * math.exp(-decay * weight)
            found[t] = -phi * advantage * float(inputs.logprobs[t])
    return found


def gmpo(inputs: LossInputs) -> dict[int, float]:
    found = {}
    for places in rows(inputs).values():
        for t in places:
            advantage = float(inputs.advantages[t])
            logs = []
            for each in places:
                log_ratio = float(inputs.logprobs[each] - inputs.old_logprobs[each])
                sign = math.copysign(1.0, float(inputs.advantages[each])) if inputs.advantages[each] else 0.0
                clamped = clip(log_ratio, -0.4, 0.4)
                logs.append(clamped if sign * clamped < sign * log_ratio else log_ratio)
            found[t] = -advantage * math.exp(sum(logs) / len(logs))
    return found


def dppo(divergence: str, penalty: float = 0.0) -> Callable[[LossInputs], dict[int, float]]:
    def reference(inputs: LossInputs) -> dict[int, float]:
        found = {}
        for places in rows(inputs).values():
            for t in places:
                advantage, log_p = float(inputs.advantages[t]), float(inputs.logprobs[t])
                log_q = float(inputs.rollout_logprobs[t])
                p, q = math.exp(log_p), math.exp(log_q)
                if divergence == "tv":
                    too_far = p - q > 0.2 if advantage > 0 else q - p > 0.2
                else:
                    kl = q * (log_q - log_p) + (1 - q) * math.log((1 - q + 1e-8) / (1 - p + 1e-8))
                    too_far = kl > 0.2 and (p > q if advantage > 0 else p < q)
                weight = 0.0 if too_far else min(math.exp(clip(log_p - log_q, -20, 20)), 20.0)
                found[t] = -weight * advantage * log_p + penalty * (log_p - log_q) ** 2
        return found

    return reference


def sequence_masked(inputs: LossInputs) -> dict[int, float]:
    found = {}
    for places in rows(inputs).values():
        distance = sum(float(inputs.rollout_logprobs[t] - inputs.logprobs[t]) for t in places) / len(places)
        for t in places:
            advantage = float(inputs.advantages[t])
            ratio = math.exp(float(inputs.logprobs[t] - inputs.old_logprobs[t]))
            found[t] = 0.0 if advantage < 0 and distance > 0.1 else clipped_token(ratio, advantage)
    return found


def chosen(with_value: Callable[[float, float, float], float]) -> Callable[[LossInputs], dict[int, float]]:
    """A loss of log ratio, advantage and batch value."""

    def reference(inputs: LossInputs) -> dict[int, float]:
        assert inputs.batch_values is not None
        return {
            t: with_value(
                float(inputs.logprobs[t] - inputs.old_logprobs[t]),
                float(inputs.advantages[t]),
                float(inputs.batch_values[t]),
            )
            for places in rows(inputs).values()
            for t in places
        }

    return reference


REFERENCES: Mapping[str, tuple[str, Mapping[str, Any], Callable[[LossInputs], dict[int, float]]]] = {
    "sapo": ("sapo", {}, sapo),
    "vespo": ("vespo", {}, vespo),
    "gmpo": ("gmpo", {}, gmpo),
    "dppo tv": ("dppo", {}, dppo("tv")),
    "dppo kl": ("dppo", {"divergence": "kl"}, dppo("kl")),
    "dppo of prime-rl": ("dppo", {"penalty": 1e-3}, dppo("tv", 1e-3)),
    "sequence_masked": ("sequence_masked", {"threshold": 0.1}, sequence_masked),
    "clip_cov": ("clip_cov", {}, chosen(lambda x, a, v: 0.0 if v else clipped_token(math.exp(x), a))),
    "kl_cov": ("kl_cov", {}, chosen(lambda x, a, v: -math.exp(x) * a + v * abs(x))),
    "high_entropy": ("high_entropy", {}, chosen(lambda x, a, v: v * clipped_token(math.exp(x), a))),
}


@pytest.mark.parametrize("case", REFERENCES)
def test_a_loss_is_its_formula(case: str) -> None:
    name, options, reference = REFERENCES[case]
    different = 0
    for seed in range(200):
        inputs = batch(seed)
        found = POLICY_LOSSES[name](inputs, **options).per_token
        expected = reference(inputs)
        for place, value in enumerate(found.tolist()):
            assert value == pytest.approx(expected.get(place, 0.0), rel=1e-9, abs=1e-12)
        plain = POLICY_LOSSES["clipped"](inputs).per_token
        different += not torch.allclose(found, plain)
    assert different > 100  # the batches reach the branches in which the loss is not the clipped one


def test_every_new_loss_has_a_reference() -> None:
    assert {name for name, *_ in REFERENCES.values()} == set(POLICY_LOSSES) - {"clipped", "gspo", "cispo", "reinforce"}


# --- the choice of tokens in the batch --------------------------------------------------------------------------------


def tokens(seed: int, count: int = 400) -> BatchTokens:
    generator = np.random.default_rng(seed)
    numbers = [generator.normal(size=count).astype(np.float32) for _ in range(3)]
    owner = np.sort(generator.integers(0, 20, count))
    return BatchTokens(numbers[0], numbers[1], owner, seed, numbers[1], None, np.abs(numbers[2]))


def selected(name: str, given: BatchTokens, **options: float) -> list[int]:
    function = requirements_of(POLICY_LOSSES[name]).batch_values
    assert function is not None
    return np.flatnonzero(function(given, **options)).tolist()


def test_covariances_are_products_of_deviations() -> None:
    given = tokens(0)
    assert given.old_logprobs_K is not None
    a, x = given.advantages_K.tolist(), given.old_logprobs_K.tolist()
    expected = [(p - sum(a) / len(a)) * (q - sum(x) / len(x)) for p, q in zip(a, x, strict=True)]
    assert covariances(given) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_clip_cov_draws_some_of_the_tokens_in_the_range_by_its_seed() -> None:
    given = tokens(1)
    found = covariances(given)
    drawn = selected("clip_cov", given, share=0.01, covariance_range=(1.0, 5.0))
    assert len(drawn) == 4
    assert all(1 < found[place] < 5 for place in drawn)
    assert drawn == selected("clip_cov", given, share=0.01, covariance_range=(1.0, 5.0))
    others = [selected("clip_cov", replace(given, seed=seed), share=0.01, covariance_range=(1.0, 5.0))
              for seed in range(5)]  # fmt: skip
    assert len({tuple(each) for each in others}) > 1
    assert selected("clip_cov", given, share=0.01, covariance_range=(90.0, 99.0)) == []


def test_kl_cov_takes_the_largest_covariances_and_at_least_one() -> None:
    given = tokens(2)
    found = covariances(given).tolist()
    assert selected("kl_cov", given, share=0.05) == sorted(sorted(range(400), key=lambda k: -found[k])[:20])
    assert len(selected("kl_cov", given, share=1e-9)) == 1


def test_the_high_entropy_share_is_a_quantile_of_the_batch() -> None:
    given = tokens(3)
    assert given.entropies_K is not None
    kept = selected("high_entropy", given, share=0.2)
    limit = torch.quantile(torch.from_numpy(given.entropies_K), 0.8).item()
    assert kept == [place for place, entropy in enumerate(given.entropies_K) if entropy >= limit]
    assert len(kept) == 80


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov", "high_entropy"])
def test_an_empty_batch_has_no_tokens_to_choose(name: str) -> None:
    nothing = tokens(0, 0)
    extra = {"covariance_range": (1.0, 5.0)} if name == "clip_cov" else {}
    assert selected(name, nothing, share=0.1, **extra) == []


# --- rules for every loss; others are in test_loss_laws.py ----------------------------------------------------------

every_loss = pytest.mark.parametrize("name", POLICY_LOSSES)


def loss_and_gradient(name: str, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    logprobs = inputs.logprobs.detach().clone().requires_grad_()
    loss = POLICY_LOSSES[name](replace(inputs, logprobs=logprobs), **options_of(name)).per_token
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return loss.detach(), gradient


def cut(inputs: LossInputs, keep: Tensor) -> LossInputs:
    _, numbers = torch.unique(inputs.sequences[keep], return_inverse=True)
    names = ("logprobs", "old_logprobs", "advantages", "loss_mask", "rollout_logprobs", "entropies", "ref_logprobs",
             "batch_values")  # fmt: skip
    return replace(inputs, sequences=numbers, **{each: getattr(inputs, each)[keep] for each in names})


@every_loss
def test_only_the_current_logprobs_carry_a_gradient(name: str) -> None:
    inputs = batch(5)
    fields = ("old_logprobs", "advantages", "rollout_logprobs", "entropies", "ref_logprobs")
    leaves = {each: getattr(inputs, each).clone().requires_grad_() for each in fields}
    logprobs = inputs.logprobs.clone().requires_grad_()
    loss = POLICY_LOSSES[name](replace(inputs, logprobs=logprobs, **leaves), **options_of(name)).per_token.sum()
    found = torch.autograd.grad(loss, [logprobs, *leaves.values()], allow_unused=True)
    assert found[0].abs().sum() > 0
    assert all(gradient is None or gradient.eq(0).all() for gradient in found[1:])


@every_loss
def test_extreme_numbers_leave_the_loss_and_its_gradient_finite(name: str) -> None:
    """In float32: probabilities of 1 and above by rounding, and next to 0; sequences of thousands of tokens."""
    values = torch.tensor([0.0, -1e-9, 1e-7, -60.0, -100.0]).repeat(800)
    count = len(values)
    for shift in (0, 1, 2):
        for advantage in (1.0, -1.0, 0.0):
            other = values.roll(shift)
            inputs = LossInputs(
                values, other, torch.full((count,), advantage), torch.ones(count, dtype=torch.bool),
                torch.zeros(count, dtype=torch.int64), other, torch.ones(count), other, torch.ones(count),
            )  # fmt: skip
            loss, gradient = loss_and_gradient(name, inputs)
            assert loss.isfinite().all()
            assert gradient.isfinite().all()


@every_loss
def test_on_policy_the_gradient_is_the_policy_gradient(name: str) -> None:
    """If all log-probabilities are equal, no token is clipped and every ratio is 1: the gradient is -A."""
    inputs = batch(3)
    same = inputs.old_logprobs
    on_policy = replace(inputs, logprobs=same, rollout_logprobs=same, batch_values=torch.ones_like(same))
    if name == "clip_cov":
        on_policy = replace(on_policy, batch_values=torch.zeros_like(same))
    if name == "kl_cov":  # |log ratio| has no gradient at 0
        on_policy = replace(on_policy, batch_values=torch.zeros_like(same))
    _, gradient = loss_and_gradient(name, on_policy)
    expected = -inputs.masked_advantages()
    assert torch.allclose(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"), [*((name, options_of(name)) for name in POLICY_LOSSES), ("dppo", {"penalty": 1e-3}),
                          ("kl_cov", {"penalty": 0.0})]
)  # fmt: skip
def test_a_loss_declares_a_gradient_of_tokens_without_an_advantage(name: str, options: Mapping[str, Any]) -> None:
    """The learner computes trajectories without an advantage for these losses alone."""
    inputs = replace(batch(3), advantages=torch.zeros_like(batch(3).advantages))
    logprobs = inputs.logprobs.clone().requires_grad_()
    loss = POLICY_LOSSES[name](replace(inputs, logprobs=logprobs), **options).per_token.sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    config = AlgorithmConfig.model_validate({"policy_loss": {"name": name, **options}})
    assert config.learns_without_advantage == bool(gradient.any())


# --- corrections and KL -----------------------------------------------------------------------------------------------


def correction_inputs(inputs: LossInputs) -> CorrectionInputs:
    return CorrectionInputs(inputs.old_logprobs, inputs.rollout_logprobs, inputs.loss_mask, inputs.sequences)


CORRECTION_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "icepop": (IcepopBounds(),), "mis": (MisBounds(),), "geometric": (GeometricBounds(low=0.9, high=1.1, truncate=2.0),)
}  # fmt: skip


@pytest.mark.parametrize("truncate", [0.0, 1.1])
def test_sequence_masks_are_means_over_the_sequence(truncate: float) -> None:
    kept = {"geometric": 0, "mean_kl": 0}
    total = 0
    for seed in range(200):
        inputs = correction_inputs(batch(seed))
        bounds = GeometricBounds(low=0.9, high=1.1, truncate=truncate)
        weights = {
            "geometric": CORRECTIONS["geometric"](inputs, bounds),
            "mean_kl": CORRECTIONS["mean_kl"](inputs, high=0.03, truncate=truncate),
        }
        for places in rows(batch(seed)).values():
            logs = [float(inputs.old_logprobs[t] - inputs.rollout_logprobs[t]) for t in places]
            mean = math.exp(sum(logs) / len(logs))
            kl = sum(math.exp(x) - 1 - x for x in logs) / len(logs)
            total += 1
            for name, passes in (("geometric", 0.9 <= mean <= 1.1), ("mean_kl", kl <= 0.03)):
                kept[name] += passes
                for t, log in zip(places, logs, strict=True):
                    weight = min(math.exp(log), truncate) if truncate else 1.0
                    assert float(weights[name][t]) == pytest.approx(weight if passes else 0.0, rel=1e-9)
    assert all(0.1 * total < count < 0.9 * total for count in kept.values())


@pytest.mark.parametrize("name", CORRECTIONS)
def test_corrections_ignore_masked_tokens_and_other_sequences(name: str) -> None:
    full = batch(4)
    inputs, masked = correction_inputs(full), ~full.loss_mask
    options = CORRECTION_OPTIONS.get(name, ())
    weights = CORRECTIONS[name](inputs, *options)
    assert weights[masked].eq(1).all()
    noise = replace(inputs, rollout_logprobs=inputs.rollout_logprobs.masked_fill(masked, math.nan))
    assert torch.equal(CORRECTIONS[name](noise, *options), weights)
    first = inputs.sequences < 3
    parts = [CORRECTIONS[name](correction_inputs(cut(full, keep)), *options) for keep in (first, ~first)]
    assert torch.allclose(torch.cat(parts), weights, rtol=1e-12)


@pytest.mark.parametrize("name", KL_ESTIMATORS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_kl_estimates_ignore_masked_tokens(name: str, value: float) -> None:
    inputs = batch(6)
    masked = ~inputs.loss_mask
    results = []
    for noise in (0.0, value):
        logprobs = inputs.logprobs.masked_fill(masked, noise).requires_grad_()
        reference = None if inputs.ref_logprobs is None else inputs.ref_logprobs.masked_fill(masked, noise)
        given = replace(inputs, logprobs=logprobs, ref_logprobs=reference, old_logprobs=inputs.old_logprobs)
        kl = KL_ESTIMATORS[name](given).masked_fill(masked, 0.0)
        results.append((kl.detach(), torch.autograd.grad(kl.sum(), logprobs)[0]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1][inputs.loss_mask], results[1][1][inputs.loss_mask])


def test_the_unbiased_estimator_has_the_gradient_of_the_divergence() -> None:
    """Exactly, over all tokens of a small vocabulary that an older policy samples, as in DeepSeek-V3.2."""
    generator = torch.Generator().manual_seed(0)
    logits, old, reference = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(3))
    logits.requires_grad_()
    log_p, log_q, log_r = (each.log_softmax(-1) for each in (logits, old, reference))
    count = len(log_p)
    zeros = torch.zeros(count, dtype=torch.float64)
    everything = LossInputs(
        log_p, log_q.detach(), zeros, torch.ones(count, dtype=torch.bool), torch.arange(count), zeros, zeros, log_r
    )
    true = torch.autograd.grad((log_p.exp() * (log_p - log_r)).sum(), logits, retain_graph=True)[0]
    gradients = {}
    for name in ("unbiased", "k3"):
        mean = (log_q.exp().detach() * KL_ESTIMATORS[name](everything)).sum()
        (gradients[name],) = torch.autograd.grad(mean, logits, retain_graph=True)
    assert torch.allclose(gradients["unbiased"], true, rtol=0, atol=1e-12)
    assert not torch.allclose(gradients["k3"], true, rtol=0, atol=1e-2)
