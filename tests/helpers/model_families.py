"""A tiny random model of each family that was tried in learner and engine."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VOCABULARY = 384
_SIZES = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # vLLM's CPU attention has no kernel for 16
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,  # large enough that the layers change the logits
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_BIASED_ROUTERS = _EXPERTS | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT_ATTENTION = {
    "num_key_value_heads": 2,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 16,
}

DENSE: Mapping[str, Mapping[str, Any]] = {
    "qwen2": _SIZES,
    "qwen3": _SIZES,
    "llama": _SIZES | {"tie_word_embeddings": True},
    "mistral": _SIZES,
    "phi3": _SIZES,
    "olmo2": _SIZES,
    "gemma3_text": _SIZES | {"query_pre_attn_scalar": 32},
    "gpt2": {"vocab_size": _VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 2, "initializer_range": 0.2},
}
EXPERTS: Mapping[str, Mapping[str, Any]] = {
    "qwen3_moe": _SIZES | _EXPERTS,
    "qwen2_moe": _SIZES | _EXPERTS | {"shared_expert_intermediate_size": 64},
    "olmoe": _SIZES | _EXPERTS,
    "mixtral": _SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": _SIZES | _BIASED_ROUTERS,
}
FAMILIES = DENSE | EXPERTS
LEARNER_FAMILIES = FAMILIES | {"deepseek_v3": _SIZES | _BIASED_ROUTERS | _LATENT_ATTENTION}
"""With a family that was tried in the learner only: vLLM's attention on a CPU computes its real width alone."""


def write_family(model_type: str, directory: Path, *, tokenizer: Path | None = None) -> Path:
    """Write a float32 model of a type in `LEARNER_FAMILIES`, and return its directory.

    All weights and saved buffers are random: norms and biases that are 1 and 0 would hide a permutation. The tokenizer
    is that of another model.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    special = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **LEARNER_FAMILIES[model_type], **special)
    )
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.ndim == 1:
                tensor.add_(0.1 * torch.randn_like(tensor))
    model.save_pretrained(directory)
    for file in tokenizer.glob("tokenizer*") if tokenizer is not None else ():
        shutil.copy(file, directory)
    return directory
