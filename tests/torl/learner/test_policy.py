"""The policy without DeepSpeed: packing leaks nothing, chunks change nothing, and only sampled tokens teach."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Qwen2Config

from torl.base.types import TrainingSample
from torl.learner.batch import pack_batch, scatter_to_samples
from torl.learner.deepspeed_engine import learning_rate_at
from torl.learner.model.attention import attention_implementation, can_share_prompts
from torl.learner.model.policy import Critic, Policy, packed_hidden_states
from torl.learner.objective import RowTensors, policy_objective
from torl.learner.rows import PackedRow
from torl.learner.update import run_critic, run_policy
from torl.run.config import AlgorithmConfig, LearnerConfig

VOCABULARY = 61


def tiny_config(**changes: Any) -> Qwen2Config:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        **changes,
    }
    return Qwen2Config(**settings)


def tiny_policy(attention: str, max_stored_logits: int = 1 << 20) -> Policy:
    torch.manual_seed(0)
    config = tiny_config()
    implementation = attention_implementation(attention, config)
    return Policy(
        AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval(),
        max_stored_logits=max_stored_logits,
    )


def tiny_samples(count: int, seed: int = 0) -> list[TrainingSample]:
    generator = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        length = int(generator.integers(2, 20))
        mask = generator.random(length) < 0.6
        mask[0], mask[-1] = False, True
        samples.append(
            TrainingSample(
                generator.integers(0, VOCABULARY, length).astype(np.int32),
                mask,
                np.where(mask, -generator.random(length), 0).astype(np.float32),
                np.where(mask, generator.normal(), 0).astype(np.float32),
            )
        )
    return samples


def only_row(samples: list[TrainingSample]) -> PackedRow:
    (row,) = pack_batch(samples, max_row_tokens=4096, ranks=1).rows[0]
    return row


def logprobs_and_entropies(
    policy: Policy, row: PackedRow, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    return run_policy(policy, RowTensors(row, torch.device("cpu")), temperature)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packing_leaks_nothing(attention: str) -> None:
    policy, plain = tiny_policy(attention), tiny_policy("eager").causal_lm
    samples = tiny_samples(8)
    packed = only_row(samples)
    logprobs, entropies = logprobs_and_entropies(policy, packed, 0.6)
    for index, sample in enumerate(samples):
        ids = torch.from_numpy(sample.token_ids).long()[None]
        logits = plain(ids).logits[0, :-1].double() / 0.6
        distribution = torch.log_softmax(logits, -1)
        mask = torch.from_numpy(sample.loss_mask[1:])
        alone = distribution.gather(-1, ids[0, 1:, None]).squeeze(-1)[mask]
        entropy = -(distribution.exp() * distribution).sum(-1)[mask]
        here = torch.from_numpy(packed.sample_K == index)
        torch.testing.assert_close(logprobs[here].double(), alone, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropies[here].double(), entropy, atol=1e-5, rtol=0)


def samples_with_equal_prompts() -> list[TrainingSample]:
    """Three groups of four samples, some of which imitate tokens, in mixed order."""
    generator = np.random.default_rng(2)
    samples = []
    for group in range(3):
        prompt = generator.integers(0, VOCABULARY, 9 + group).astype(np.int32)
        for member, sample in enumerate(tiny_samples(4, seed=group)):
            changes: dict[str, Any] = {}
            for name, start in (("loss_mask", True), ("rollout_logprobs", -0.5), ("advantages", 0.5)):
                values = getattr(sample, name).copy()
                values[0] = start
                changes[name] = np.concatenate([np.zeros(len(prompt), values.dtype), values])
            ids = np.concatenate([prompt, sample.token_ids])
            weights = (np.arange(len(ids)) >= len(prompt) + 1) * np.float32(member == 1)
            samples.append(TrainingSample(ids, **changes, imitation_weights=weights))
    return [samples[place] for place in generator.permutation(len(samples))]


@pytest.mark.parametrize("max_row_tokens", [4096, 64])
def test_shared_prompts_change_no_number(max_row_tokens: int) -> None:
    samples = samples_with_equal_prompts()
    policy, critic = tiny_policy("sdpa"), Critic(tiny_policy("sdpa").causal_lm)
    torch.nn.init.normal_(critic.value_head.weight)
    assert policy.shares_prompts
    assert critic.shares_prompts
    found = []
    for share in (False, True):
        batch = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=1, share_prompts=share)
        rows = batch.rows[0]
        logprobs, values = [], []
        policy.zero_grad()
        critic.zero_grad()
        for row in rows:
            tensors = RowTensors(row, torch.device("cpu"))
            outputs, entropies = run_policy(policy, tensors, 0.7, entropy="train", imitated=True)
            assert tensors.imitated is not None
            sampled = len(tensors.target_K)
            weighted = outputs[:sampled] @ tensors.advantage_K + 0.1 * entropies[:sampled].sum()
            (weighted + outputs[sampled:] @ tensors.imitated.weight_J).backward()
            value_K = run_critic(critic, tensors)
            (value_K @ tensors.advantage_K).backward()
            logprobs.append(outputs[:sampled].detach().numpy())
            values.append(value_K.detach().numpy())
        found.append(
            [
                *(np.concatenate(scatter_to_samples(samples, rows, arrays)) for arrays in (logprobs, values)),
                *(weight.grad.numpy() for model in (policy, critic) for weight in model.parameters()),
            ]
        )
        tokens = sum(map(len, rows))
        assert tokens == batch.tokens if not share else tokens < 0.8 * batch.tokens
    for separate, shared in zip(*found, strict=True):
        np.testing.assert_allclose(shared, separate, rtol=1e-4, atol=2e-5 * np.abs(separate).max())


@pytest.mark.parametrize("attention", ["eager", "flash_attention_2"])
def test_prompts_are_shared_under_packed_attention_only(attention: str) -> None:
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=attention))
    assert not can_share_prompts(model)


def test_other_samples_in_the_row_change_nothing() -> None:
    """Bit-equal, because attention runs on each sample's own piece."""
    policy = tiny_policy("sdpa")
    first, second, third = tiny_samples(3, seed=4)
    changed = TrainingSample(
        (first.token_ids + 1) % VOCABULARY, first.loss_mask, first.rollout_logprobs, first.advantages
    )
    rows = [only_row([other, second, third]) for other in (first, changed)]
    assert rows[0].samples == rows[1].samples
    kept = torch.from_numpy(rows[0].sample_K != 0)
    before, after = (logprobs_and_entropies(policy, row)[0] for row in rows)
    torch.testing.assert_close(before[kept], after[kept], atol=1e-6, rtol=0)
    assert not torch.allclose(before[~kept], after[~kept], atol=1e-2)


def test_chunks_change_nothing() -> None:
    row = only_row(tiny_samples(6))
    gradients = []
    for max_stored_logits in (1, 3 * VOCABULARY, 1 << 20):
        policy = tiny_policy("sdpa", max_stored_logits=max_stored_logits)
        logprobs, entropies = logprobs_and_entropies(policy, row, 0.9)
        (logprobs * torch.from_numpy(row.advantage_K)).sum().backward()
        gradients.append((logprobs, entropies, policy.causal_lm.lm_head.weight.grad))
    for found in gradients[:2]:
        for value, expected in zip(found, gradients[2], strict=True):
            assert value is not None
            torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)


def test_only_sampled_tokens_teach() -> None:
    """The gradient equals that of the loss written out over sampled tokens; values under the mask do not matter."""
    policy = tiny_policy("sdpa")
    clean = tiny_samples(4, seed=2)
    dirty = [
        TrainingSample(
            sample.token_ids,
            sample.loss_mask,
            np.where(sample.loss_mask, sample.rollout_logprobs, -7).astype(np.float32),
            np.where(sample.loss_mask, sample.advantages, 1e6).astype(np.float32),
        )
        for sample in clean
    ]
    sampled_tokens = sum(int(sample.loss_mask.sum()) for sample in clean)
    gradients = []
    for samples in (clean, dirty):
        policy.zero_grad()
        row = RowTensors(only_row(samples), torch.device("cpu"))
        logprobs, entropies = run_policy(policy, row, 1.0)
        policy_objective(logprobs, entropies, row, AlgorithmConfig()).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in policy.parameters() if parameter.grad is not None])
    plain = tiny_policy("eager").causal_lm
    for sample in clean:
        ids = torch.from_numpy(sample.token_ids).long()[None]
        logprobs = torch.log_softmax(plain(ids).logits[0, :-1], -1).gather(-1, ids[0, 1:, None]).squeeze(-1)
        weights = torch.from_numpy(np.where(sample.loss_mask, sample.advantages, 0)[1:])
        (-(logprobs * weights).sum() / sampled_tokens).backward()  # the gradient of the ratio at 1
    expected = [parameter.grad for parameter in plain.parameters() if parameter.grad is not None]
    for clean_gradient, dirty_gradient, written_out in zip(*gradients, expected, strict=True):
        assert torch.equal(clean_gradient, dirty_gradient)
        torch.testing.assert_close(clean_gradient, written_out, atol=1e-6, rtol=1e-4)


def test_observation_changes_only_later_tokens() -> None:
    """Observed tokens after the last sampled one change no bit of the gradient; between sampled ones they do."""
    (sample,) = tiny_samples(1, seed=3)
    mask = np.array([place in (2, 3, 6) for place in range(len(sample))])
    sample = replace(sample, loss_mask=mask, advantages=mask.astype(np.float32))

    def gradient(changed: int | None) -> list[torch.Tensor]:
        policy = tiny_policy("sdpa")
        ids = sample.token_ids.copy()
        if changed is not None:
            ids[changed] = (ids[changed] + 1) % VOCABULARY
        row = RowTensors(only_row([replace(sample, token_ids=ids)]), torch.device("cpu"))
        policy_objective(*run_policy(policy, row, 1.0), row, AlgorithmConfig()).loss.backward()
        return [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]

    base, behind, between = gradient(None), gradient(8), gradient(5)
    assert all(torch.equal(one, other) for one, other in zip(base, behind, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(base, between, strict=True))


@pytest.mark.parametrize(
    ("loss", "aggregation", "correction"),
    [
        ("clipped", "token", None),
        ("clipped", "sequence", "tis"),
        ("clipped", "fixed_length", "icepop"),
        ("gspo", "sequence", None),
        ("gspo", "token", "mis"),
        ("cispo", "token", "icepop"),
        ("cispo", "fixed_length", "mis"),
        ("reinforce", "sequence", "mis"),
    ],
)
def test_rows_ranks_and_order_change_neither_loss_nor_gradient(
    loss: Any, aggregation: Any, correction: Any, drifted_samples: list[TrainingSample]
) -> None:
    """Summed over rows and ranks, for every loss off its old policy: the same to 1e-6, however the batch is cut."""
    bounds = {"tis": {"high": 1.5}}.get(correction, {"low": 0.5, "high": 1.5})
    algorithm = AlgorithmConfig.model_validate(
        {
            "policy_loss": loss,
            "aggregation": {"name": aggregation, **({"length": 17} if aggregation == "fixed_length" else {})},
            "importance_correction": correction and {"name": correction, **bounds},
            "kl": {"coefficient": 0.3},
            "entropy_bonus": 0.1,
        }
    )
    weighting = algorithm.aggregation.bind()

    policy = tiny_policy("sdpa")

    def gradient(samples: list[TrainingSample], max_row_tokens: int, ranks: int) -> torch.Tensor:
        """Loss and gradient as one vector, the loss first."""
        policy.zero_grad()
        batch = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=ranks, aggregation=weighting)
        total = torch.zeros(1)
        for row in (RowTensors(row, torch.device("cpu")) for rows in batch.rows for row in rows):
            part = policy_objective(*run_policy(policy, row, 0.9, entropy="train"), row, algorithm).loss
            part.backward()
            total += part.detach()
        return torch.cat([total, *(parameter.grad.flatten() for parameter in policy.parameters())])

    whole = gradient(drifted_samples, 4096, 1)
    assert whole[1:].norm() > 1e-3
    for samples, max_row_tokens, ranks in (
        (drifted_samples, 24, 1),
        (drifted_samples, 40, 2),
        (drifted_samples[::-1], 4096, 1),
        ([drifted_samples[place] for place in (3, 0, 6, 1, 7, 5, 2, 4)], 24, 3),
    ):
        found = gradient(samples, max_row_tokens, ranks)
        assert float(found[0]) == pytest.approx(float(whole[0]), rel=1e-6, abs=1e-6)
        assert float((found - whole).norm() / whole.norm()) < 1e-6


@pytest.fixture(scope="module")
def drifted_samples() -> list[TrainingSample]:
    """Samples whose old, reference and rollout logprobs lie around the policy's, inside the bounds and outside."""
    generator = np.random.default_rng(1)
    samples = tiny_samples(8, seed=5)
    row = only_row(samples)
    with torch.no_grad():
        logprobs = logprobs_and_entropies(tiny_policy("sdpa"), row, 0.9)[0].numpy()
    found = []
    for index, sample in enumerate(samples):

        def near(spread: float, sample: TrainingSample = sample, index: int = index) -> np.ndarray[Any, Any]:
            values = np.zeros(len(sample), dtype=np.float32)
            own = row.sample_K == index
            values[row.offset_K[own]] = logprobs[own] + generator.normal(0, spread, own.sum())
            return values

        found.append(replace(sample, old_logprobs=near(0.2), ref_logprobs=near(0.5), rollout_logprobs=near(0.3)))
    return found


def test_a_row_without_samples_has_a_backward_and_no_gradient() -> None:
    policy = tiny_policy("sdpa")
    idle = next(
        row for rows in pack_batch(tiny_samples(1), max_row_tokens=64, ranks=2).rows for row in rows if not row.samples
    )
    row = RowTensors(idle, torch.device("cpu"))
    logprobs, entropies = run_policy(policy, row, 1.0)
    everything = AlgorithmConfig.model_validate(
        {"importance_correction": "mis", "kl": {"coefficient": 1.0}, "entropy_bonus": 1.0, "policy_loss": "gspo"}
    )
    found = policy_objective(logprobs, entropies, row, everything)
    found.loss.backward()
    assert not any({**found.sums, **found.maxima}.values())
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in policy.parameters())


def test_old_and_rollout_logprobs_enter_as_defined() -> None:
    """One token of two by hand: ratio e^0.1, clipped at 1.05; importance weight e^0.4 cut at 1.2; KL and entropy."""
    token = TrainingSample(
        np.array([3, 5], dtype=np.int32),
        np.array([False, True]),
        np.array([0, -1.0], dtype=np.float32),
        np.array([0, 2.0], dtype=np.float32),
        old_logprobs=np.array([0, -0.6], dtype=np.float32),
        ref_logprobs=np.array([0, -0.9], dtype=np.float32),
    )
    other = TrainingSample(*(np.array([0, 0], dtype) for dtype in (np.int32, np.bool_, np.float32, np.float32)))
    other.loss_mask[1] = True
    other = replace(other, old_logprobs=np.zeros(2, np.float32), ref_logprobs=np.zeros(2, np.float32))
    algorithm = AlgorithmConfig.model_validate(
        {
            "policy_loss": {"clip_low": 0.05, "clip_high": 0.05},
            "importance_correction": {"name": "tis", "high": 1.2},
            "kl": {"coefficient": 0.1, "estimator": "k2"},
            "entropy_bonus": 0.3,
        }
    )
    batch = pack_batch([token, other], max_row_tokens=2, ranks=1)
    row = RowTensors(batch.rows[0][0], torch.device("cpu"))
    found = policy_objective(torch.tensor([-0.5]), torch.tensor([0.25]), row, algorithm)
    # Half of the batch: -1.05 * 2 * 1.2, plus 0.1 * (-0.9 + 0.5)^2 / 2, minus 0.3 * 0.25.
    assert float(found.loss) == pytest.approx((-2.52 + 0.008 - 0.075) / 2, rel=1e-6)
    sums = {name: float(value) for name, value in found.sums.items()}
    assert sums["entropy"] == 0.25
    assert (sums["clip_fraction"], sums["dual_clip_fraction"]) == (1, 0)
    assert sums["importance_weight"] == pytest.approx(1.2)
    assert sums["reference_kl"] == pytest.approx(0.08)
    assert float(found.maxima["logprob_gap_max"]) == pytest.approx(0.4, rel=1e-6)


def test_on_policy_gap_leaves_out_tokens_of_older_policies() -> None:
    stale = TrainingSample(
        np.array([3, 5, 6], np.int32),
        np.array([False, True, True]),
        np.array([0, -1.0, -2.0], np.float32),
        np.ones(3, np.float32),
        policy_versions=np.array([-1, 6, 7], np.int32),
    )
    for version, gap, count in ((7, 0.25, 1), (6, 0.5, 1), (8, 0.0, 0), (None, 0.75, 2)):
        (packed,) = pack_batch([stale], max_row_tokens=4, ranks=1, policy_version=version).rows[0]
        row = RowTensors(packed, torch.device("cpu"))
        found = policy_objective(torch.tensor([-0.5, -2.25]), torch.zeros(2), row, AlgorithmConfig()).sums
        assert (float(found["logprob_gap_on_policy"]), int(found["on_policy_fraction"])) == (gap, count)
        assert float(found["logprob_gap_mean"]) == 0.75


def test_entropy_has_gradient_on_request() -> None:
    policy = tiny_policy("sdpa")
    row = RowTensors(only_row(tiny_samples(3)), torch.device("cpu"))
    _, without = run_policy(policy, row, 1.0)
    assert not without.requires_grad
    run_policy(policy, row, 1.0, entropy="train")[1].sum().backward()
    head = policy.causal_lm.lm_head.weight
    expected = torch.autograd.grad(
        torch.distributions.Categorical(
            logits=policy.causal_lm.lm_head(_hidden(policy, row).index_select(0, row.predictor_K))
        )
        .entropy()
        .sum(),
        head,
    )[0]
    torch.testing.assert_close(head.grad, expected, atol=1e-5, rtol=1e-4)


def _hidden(policy: Policy, row: RowTensors) -> torch.Tensor:
    return packed_hidden_states(policy.causal_lm, row.token_ids_N, row.position_ids_N, row.pieces)


def test_critic_starts_at_zero_and_reads_the_preceding_tokens() -> None:
    critic = Critic(tiny_policy("sdpa").causal_lm)
    samples = tiny_samples(5)
    packed = only_row(samples)
    row = RowTensors(packed, torch.device("cpu"))
    assert not run_critic(critic, row).any()
    torch.nn.init.normal_(critic.value_head.weight)
    values = run_critic(critic, row)
    assert values.shape == row.target_K.shape
    trunk = tiny_policy("eager").causal_lm.base_model
    expected = []
    for sample in (samples[index] for index in packed.samples):
        hidden = trunk(torch.from_numpy(sample.token_ids).long()[None]).last_hidden_state[0, :-1]
        expected.append(critic.value_head(hidden).squeeze(-1)[torch.from_numpy(sample.loss_mask[1:])])
    torch.testing.assert_close(values, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_a_head_that_is_more_than_a_product_is_refused() -> None:
    config = Gemma2Config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        Policy(AutoModelForCausalLM.from_config(config), max_stored_logits=1 << 20)


def test_learning_rate_schedules() -> None:
    def rates(total: int = 10, **settings: Any) -> list[float]:
        config = LearnerConfig(learning_rate=1.0, **settings)
        return [learning_rate_at(step, total, config) for step in range(total)]

    assert rates() == [1.0] * 10
    assert rates(4, warmup_steps=3) == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates(4, lr_schedule="linear") == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert rates(6, lr_schedule="linear", warmup_steps=2) == pytest.approx([1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25])
    assert rates(4, lr_schedule="cosine") == pytest.approx([1.0, 0.8535534, 0.5, 0.1464466])
    assert learning_rate_at(99, 10, LearnerConfig(lr_schedule="linear")) == 0
