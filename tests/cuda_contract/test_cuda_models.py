"""Models, adapters and heads on fake CUDA tensors: every operation takes what it gets there, on one device."""

from itertools import cycle
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fake_backward import backward
from fake_gpu import CUDA_FUNCTIONS, GPU, FakeGpuMode, move_module
from learner_fixtures import random_samples
from model_families import FAMILIES
from torl.components.algorithms.losses import CORRECTIONS, KL_ESTIMATORS, POLICY_LOSSES
from torl.learner.batch import pack_batch
from torl.learner.model.attention import PACKED, attention_implementation
from torl.learner.model.head import EntropyMode, _Logprobs
from torl.learner.model.lora import add_adapters, disabled_adapters, merged_weights
from torl.learner.model.policy import Critic, Policy
from torl.learner.objective import RowTensors, policy_objective
from torl.learner.rows import RowPieces
from torl.run.config import AlgorithmConfig, LoraConfig

LENGTHS = (5, 7)
SAMPLES, SHARING = RowPieces(LENGTHS, (None, None)), RowPieces(LENGTHS, (None, 0))
MODELS: dict[str, dict[str, Any]] = {family: {"model_type": family, **sizes} for family, sizes in FAMILIES.items()}
MODELS["mistral without windows"] = MODELS["mistral"] | {"sliding_window": None}
MASKED = {"mistral", "gemma3_text"}
"""Models with sliding windows, which transformers computes with masks."""
COMMON = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0} | dict.fromkeys(
    ("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0
)


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "_apply", move_module)
    for name, function in CUDA_FUNCTIONS.items():
        monkeypatch.setattr(torch.cuda, name, function)


def causal_lm(model: str) -> Any:
    """A model in bfloat16, on the GPU of the mode that is entered."""
    config = AutoConfig.for_model(**MODELS[model], **COMMON)
    attention = attention_implementation("sdpa", config)
    assert (attention == PACKED) == (model not in MASKED)
    with GPU:
        made = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    made.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return made.train()


def row() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, positions and predictors of a row of two samples."""
    positions = torch.cat([torch.arange(length) for length in LENGTHS]).to(GPU)
    return torch.zeros(sum(LENGTHS), dtype=torch.int64, device=GPU), positions, torch.arange(1, 10, device=GPU)


@pytest.mark.parametrize(
    ("family", "lora"),
    [(family, lora) for family in MODELS for lora in (False, True) if (family, lora) != ("gpt2", True)],
)
def test_policy_computes_on_the_gpu(family: str, lora: bool) -> None:
    with FakeGpuMode():
        model = add_adapters(causal_lm(family), LoraConfig(rank=2) if lora else None, seed=0)
        policy = Policy(model, max_stored_logits=1 << 20)
        assert {parameter.device for parameter in policy.parameters()} == {GPU}
        tokens, positions, predictors = row()
        pieces = SHARING if policy.shares_prompts else SAMPLES
        logprobs, entropies = policy(tokens, positions, predictors, tokens[predictors], 0.7, pieces)
        assert (logprobs.device, logprobs.dtype, logprobs.shape) == (GPU, torch.float32, predictors.shape)
        assert (entropies.device, entropies.dtype) == (GPU, torch.float32)
        assert logprobs.requires_grad
        with disabled_adapters(policy), torch.no_grad():
            reference, _ = policy(tokens, positions, predictors, tokens[predictors], 1.0, pieces, "off")
        assert reference.device == GPU
        assert {weight.value().device for weight in merged_weights(policy)} == {GPU}


@pytest.mark.parametrize("entropy", ["off", "log", "train"])
@pytest.mark.parametrize("stored", [9 * 100, 1 << 20])
@pytest.mark.parametrize("logits_dtype", [None, torch.float32])
def test_head_has_gradients_on_the_gpu(logits_dtype: torch.dtype | None, stored: int, entropy: EntropyMode) -> None:
    """Its backward pass is called as autograd would: the engine of autograd needs a driver."""
    with FakeGpuMode():
        head = Policy(causal_lm("qwen2"), max_stored_logits=stored, logits_dtype=logits_dtype).causal_lm.lm_head
        hidden = torch.zeros(9, head.weight.shape[1], dtype=torch.bfloat16, device=GPU, requires_grad=True)
        targets = torch.zeros(9, dtype=torch.int64, device=GPU)
        logprobs, entropies = head(hidden, targets, 0.7, entropy)
        gradients = _Logprobs.backward(logprobs.grad_fn, torch.ones_like(logprobs), torch.ones_like(entropies))
        for gradient, value in zip(gradients, (hidden, head.weight), strict=False):
            assert (gradient.device, gradient.dtype, gradient.shape) == (GPU, torch.bfloat16, value.shape)


@pytest.mark.parametrize("correction", [None, *CORRECTIONS])
@pytest.mark.parametrize(("loss", "estimator"), [*zip(POLICY_LOSSES, cycle(KL_ESTIMATORS), strict=False)])
def test_every_loss_is_computed_on_the_gpu(loss: str, estimator: str, correction: str | None) -> None:
    options = {"threshold": 0.1} if loss == "sequence_masked" else {}
    terms = {
        "policy_loss": {"name": loss, **options},
        "kl": {"coefficient": 0.1, "estimator": estimator},
        "entropy_bonus": 0.1,
    }
    algorithm = AlgorithmConfig.model_validate(terms | {"importance_correction": correction})
    packed = pack_batch(random_samples(5), max_row_tokens=90, ranks=1).rows[0][0]
    with FakeGpuMode():
        given = RowTensors(packed, GPU)
        logprobs = torch.zeros(len(packed.target_K), device=GPU, requires_grad=True)
        objective = policy_objective(logprobs, logprobs * 2, given, algorithm)
        metrics = [*objective.sums.values(), *objective.maxima.values()]
        assert {each.device for each in (objective.loss, given.sequence_K, *metrics)} == {GPU}
        backward(objective.loss)
        assert logprobs.grad is not None
        assert logprobs.grad.device == GPU


@pytest.mark.parametrize("family", MODELS)
def test_critic_computes_on_the_gpu(family: str) -> None:
    with FakeGpuMode():
        critic = Critic(causal_lm(family))
        tokens, positions, predictors = row()
        values = critic(tokens, positions, predictors, SHARING if critic.shares_prompts else SAMPLES)
        assert (values.device, values.dtype, values.shape) == (GPU, torch.float32, predictors.shape)
