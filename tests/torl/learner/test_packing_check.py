"""The check that a policy computes its model: the tested families pass in both precisions, wrong models fail."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from model_families import LEARNER_FAMILIES
from torl.base.errors import DataError
from torl.learner.model.attention import attention_implementation
from torl.learner.model.lora import add_adapters
from torl.learner.model.packing_check import measure_differences, require_separate_samples
from torl.learner.model.policy import Policy
from torl.run.config import LoraConfig

_TOKENS = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
_SIZES = {
    "vocab_size": 384,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
}
_DECODER = _SIZES | {"num_key_value_heads": 4, "intermediate_size": 128}
_DROPOUT = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)

APART, LATER, LOGITS = "samples of a packed row affect", "later tokens affect", "are not those of transformers' model"
WRONG: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "afmoe": (
        _DECODER | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        APART,
    ),
    "bloom": ({"vocab_size": 384, "hidden_size": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}, APART),
    "codegen": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": 384} | _DROPOUT, APART),
    "recurrent_gemma": (_DECODER | {"lru_width": 64, "attention_window_size": 64}, APART),
    "roformer": (_SIZES | {"is_decoder": True}, APART),
    "minicpm3": (
        _DECODER | {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
        LOGITS,
    ),
    "bert": (_SIZES | {"is_decoder": True}, LOGITS),
}
UNSUPPORTED: Mapping[str, Mapping[str, Any]] = {
    "stablelm": _DECODER,
    "nemotron": _DECODER,
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 384},
}


def make_policy(
    model_type: str,
    sizes: Mapping[str, Any],
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    lora: LoraConfig | None = None,
) -> Policy:
    config = AutoConfig.for_model(model_type, **sizes, **_TOKENS)
    for name, value in config.to_dict().items():
        if "dropout" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    torch.manual_seed(0)
    implementation = attention_implementation(attention, config)
    causal_lm = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=implementation)
    with torch.no_grad():
        for parameter in causal_lm.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return Policy(add_adapters(causal_lm, lora, seed=0), max_stored_logits=1 << 20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("model_type", LEARNER_FAMILIES)
def test_tested_families_pass_by_far(model_type: str, dtype: torch.dtype) -> None:
    policy = make_policy(model_type, LEARNER_FAMILIES[model_type] | _DROPOUT, dtype)
    attention = policy.causal_lm.config._attn_implementation
    require_separate_samples(policy)
    assert policy.training
    assert policy.causal_lm.config._attn_implementation == attention
    found = measure_differences(policy.eval())
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype] * found.spread
    assert max(found.other_sample, found.later_token, found.own_logits) < tolerance
    assert 0.3 < found.spread < 10


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_adapted_model_passes(attention: str) -> None:
    require_separate_samples(
        make_policy("qwen3_moe", LEARNER_FAMILIES["qwen3_moe"], attention=attention, lora=LoraConfig(rank=2))
    )


@pytest.mark.parametrize("model_type", WRONG)
def test_wrong_model_is_refused(model_type: str) -> None:
    sizes, reason = WRONG[model_type]
    with pytest.raises(DataError, match=rf"a {model_type} model cannot be trained: .*{reason}"):
        require_separate_samples(make_policy(model_type, sizes))


@pytest.mark.parametrize("model_type", UNSUPPORTED)
def test_model_without_packed_samples_is_refused(model_type: str) -> None:
    with pytest.raises(DataError, match=f"a {model_type} model cannot be trained: it does not support") as raised:
        require_separate_samples(make_policy(model_type, UNSUPPORTED[model_type]))
    assert raised.value.__cause__ is not None


def test_later_tokens_that_affect_earlier_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in both directions within a sample."""
    import torch.nn.functional as functional

    causal = functional.scaled_dot_product_attention

    def both_ways(*inputs: Any, is_causal: bool = False, **settings: Any) -> torch.Tensor:
        return causal(*inputs, is_causal=False, **settings)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", both_ways)
    with pytest.raises(DataError, match=LATER):
        require_separate_samples(make_policy("qwen3", LEARNER_FAMILIES["qwen3"]))
