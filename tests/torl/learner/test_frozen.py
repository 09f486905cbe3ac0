"""Frozen weights in bfloat16 compute what they compute in float32, to the last bit."""

from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from torl.learner.model.lora import add_adapters, compact_frozen_weights, merged_weights
from torl.run.config import LoraConfig

TOKEN_IDS = torch.arange(24).reshape(2, 12)
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture
def model() -> Any:
    """A model with weights as in a file in bfloat16, and with adapters that change its output."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    adapted = add_adapters(Qwen2ForCausalLM(config).bfloat16().float(), LoraConfig(rank=4), seed=0)
    for name, parameter in adapted.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.1)
        if name.endswith("_proj.base_layer.bias"):
            torch.nn.init.normal_(parameter)
    return adapted


def logits_and_gradients(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    logits = model(input_ids=TOKEN_IDS).logits
    logits.logsumexp(-1).sum().backward()
    return logits, {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def test_the_numbers_stay_the_same_in_half_the_memory(model: Any) -> None:
    expected, expected_gradients = logits_and_gradients(model)
    merged = {each.name: each.value() for each in merged_weights(model)}
    held = dict(model.named_parameters())
    compact_frozen_weights(model)
    logits, gradients = logits_and_gradients(model)
    assert torch.equal(logits, expected)
    assert gradients.keys() == expected_gradients.keys()
    assert all(torch.equal(gradients[name], expected_gradients[name]) for name in gradients)
    assert all(torch.equal(each.value(), merged[each.name]) for each in merged_weights(model))
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in held.items())  # DeepSpeed holds them as well
    compact = {name for name, parameter in after.items() if parameter.dtype == torch.bfloat16}
    assert compact == {name for name in after if name.endswith("_proj.base_layer.weight")}
    assert len(compact) == 2 * len(ADAPTED)


def test_weights_that_bfloat16_would_round_stay(model: Any) -> None:
    layer = model.model.layers[1].mlp.down_proj.base_layer
    with torch.no_grad():
        layer.weight[0, 0] = 1 + 2**-12
    compact_frozen_weights(model)
    assert model.model.layers[1].mlp.down_proj.base_layer is layer
    assert layer.weight.dtype == torch.float32
    assert model.model.layers[0].mlp.down_proj.base_layer.weight.dtype == torch.bfloat16
