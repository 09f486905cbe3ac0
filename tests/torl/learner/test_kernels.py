"""Kernels of a model: the kernels that work without a GPU, and errors about the others."""

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from torl.base.errors import DataError
from torl.learner.model.loading import use_kernels
from torl.run.config import ModelConfig


@pytest.fixture
def model() -> Qwen2ForCausalLM:
    config = Qwen2Config(vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    config.num_key_value_heads = 2
    return Qwen2ForCausalLM(config)


@pytest.mark.parametrize(
    ("kernels", "said"), [("auto", "torch's kernels: Liger's kernels need"), ("torch", "as configured")]
)
def test_model_is_unchanged_without_a_gpu_and_this_is_logged(
    kernels: str, said: str, model: Qwen2ForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = {name: type(module) for name, module in model.named_modules()}
    assert said in use_kernels(model, ModelConfig.model_validate({"path": "m", "kernels": kernels}))
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_unavailable_requested_kernels_are_an_error(model: Qwen2ForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DataError, match=r"model\.kernels = 'liger': Liger's kernels need a CUDA GPU"):
        use_kernels(model, ModelConfig(path="m", kernels="liger"))
