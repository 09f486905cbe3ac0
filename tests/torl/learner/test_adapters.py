"""Adapters of each family of models: the layers that have one, and the model that leaves the learner."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

from model_families import LEARNER_FAMILIES, write_family
from torl.base.errors import DataError
from torl.learner.exporting import export_model
from torl.learner.model.lora import adapter_weights, add_adapters, export_adapter
from torl.learner.model.policy import Policy
from torl.learner.publishing import full_adapters, full_weights
from torl.run.config import LoraConfig

TOKEN_IDS = torch.arange(1, 20)[None]
ADAPTED_FAMILIES = [family for family in LEARNER_FAMILIES if family != "gpt2"]  # it stores its weights transposed
PEFT_CANNOT_LOAD = {"glm4_moe", "deepseek_v3"}
"""Models whose shared experts have a `gate_proj`, which peft 0.21 takes for fused experts."""


def load(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def logprobs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        scores: torch.Tensor = model(TOKEN_IDS).logits.log_softmax(-1)
    return scores


def adapt(causal_lm: Any, config: LoraConfig) -> Any:
    """Add adapters that change the output."""
    adapted = add_adapters(causal_lm, config, seed=0)
    for name, weight in adapter_weights(adapted):
        if ".lora_B." in name:
            torch.nn.init.normal_(weight, std=0.3)
    return adapted


@pytest.mark.parametrize("model_type", ADAPTED_FAMILIES)
def test_exported_model_is_the_adapted_one(model_type: str, tmp_path: Path) -> None:
    source = write_family(model_type, tmp_path / "source")
    config = LoraConfig(rank=4)
    torch.manual_seed(0)
    policy = Policy(adapt(load(source), config), max_stored_logits=1 << 20)
    engine = SimpleNamespace(module=policy, zero_optimization_stage=lambda: 0)
    export_model(full_weights(engine), source, tmp_path / "export")
    export_adapter(list(full_adapters(engine)), config, str(source), tmp_path / "adapter")
    expected, base = logprobs(policy.causal_lm), logprobs(load(source))
    assert (expected - base).abs().max() > 1
    torch.testing.assert_close(logprobs(load(tmp_path / "export")), expected, atol=1e-3, rtol=0)
    if model_type not in PEFT_CANNOT_LOAD:
        loaded = PeftModel.from_pretrained(load(source), tmp_path / "adapter")
        torch.testing.assert_close(logprobs(loaded), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("model_type", ADAPTED_FAMILIES)
def test_all_linear_layers_are_adapted_by_default(model_type: str) -> None:
    """All except the head, in every layer. Parameters of fused experts are not linear layers."""
    sizes = LEARNER_FAMILIES[model_type] | {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes))
    linear = {name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)} - {"lm_head"}
    adapted = adapter_weights(add_adapters(model, LoraConfig(rank=2), seed=0))
    assert {name.partition(".lora_")[0] for name, _ in adapted} == linear
    assert len(adapted) == 2 * len(linear)
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {name for name, _ in adapted}


@pytest.mark.parametrize(
    ("model_type", "targets", "unknown"),
    [
        ("qwen3", ("q_proj", "lm_head"), "lm_head"),
        ("qwen3", ("q_proj", "embed_tokens"), "embed_tokens"),
        ("qwen3", ("q_proj", "qproj", "proj"), "qproj or proj"),
        ("qwen3_moe", ("q_proj", "gate_proj", "up_proj", "down_proj"), "gate_proj or up_proj or down_proj"),
        ("mixtral", ("experts",), "experts"),
    ],
)
def test_names_of_no_linear_layer_are_refused(model_type: str, targets: tuple[str, ...], unknown: str) -> None:
    sizes = LEARNER_FAMILIES[model_type] | {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes))
    with pytest.raises(DataError, match=rf"is named {unknown} \(fused experts and embeddings cannot be adapted\)"):
        add_adapters(model, LoraConfig(rank=2, target_modules=targets), seed=0)
