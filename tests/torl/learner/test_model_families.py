"""Families of models: the tensors that leave the learner, and the models that it refuses by their config.json."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from model_families import LEARNER_FAMILIES, write_family
from torl.base.errors import DataError
from torl.components.hub import require_trainable


@pytest.mark.parametrize("model_type", LEARNER_FAMILIES)
def test_tensors_leave_as_in_saved_files(model_type: str, tmp_path: Path) -> None:
    """Their names, shapes and values are those that transformers' `save_pretrained` writes."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM

    from torl.learner.model.policy import Policy
    from torl.learner.publishing import full_weights

    saved = load_file(write_family(model_type, tmp_path) / "model.safetensors")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))  # as the learner creates it
    model.load_state_dict(AutoModelForCausalLM.from_pretrained(tmp_path).state_dict())
    policy = Policy(model, max_stored_logits=1 << 20)
    sent = list(full_weights(SimpleNamespace(module=policy, zero_optimization_stage=lambda: 0)))
    assert sorted(name for name, _ in sent) == sorted(saved)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in sent)


@pytest.mark.parametrize("model_type", LEARNER_FAMILIES)
def test_learner_keeps_the_precision_of_saved_buffers(model_type: str, tmp_path: Path) -> None:
    """Biases of routers stay in float32 in a model in bfloat16, as transformers and vLLM load them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from torl.learner.model.loading import build_empty_model, saved_buffers

    write_family(model_type, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    config = AutoConfig.from_pretrained(tmp_path)
    built = build_empty_model(config, torch.bfloat16, "sdpa", None, torch.device("cpu"))
    assert {name: buffer.dtype for name, buffer in saved_buffers(built).items()} == {
        name: buffer.dtype for name, buffer in saved_buffers(loaded).items()
    }


@pytest.mark.parametrize("model_type", LEARNER_FAMILIES)
def test_tried_family_is_accepted(model_type: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **LEARNER_FAMILIES[model_type]}))
    require_trainable(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "gemma2"}, "a gemma2 model cannot be trained: its config sets final_logit_softcapping"),
        ({"model_type": "cohere"}, "its config sets logit_scale"),
        ({"model_type": "granite", "logits_scaling": 8.0}, "its config sets logits_scaling"),
        ({"model_type": "qwen3_next"}, r"its layers \(linear_attention\) would mix the samples of a packed row"),
        ({"model_type": "mamba"}, "would mix the samples"),
        ({"model_type": "rwkv"}, r"its layers \(no attention\)"),
        ({"model_type": "t5"}, "it is not a decoder of text"),
        ({"model_type": "bart"}, "it is not a decoder of text"),
        ({"model_type": "qwen2_5_vl"}, "it is not a decoder of text"),
        (
            {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 4.0}},
            r"its rotary positions \(rope_type = dynamic\) depend on the longest sample",
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_type": "dynamic", "factor": 2}}},
            r"rope_type = dynamic",
        ),
        (
            {
                "model_type": "phi3",
                "original_max_position_embeddings": 16,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48},
            },
            r"its rotary positions \(rope_type = longrope\)",
        ),
        ({"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}, "its weights are quantized"),
        ({"model_type": "wishful"}, "transformers cannot read its config.json"),
        ({"model_type": "wishful", "auto_map": {"AutoConfig": "own.Config"}}, "code .* which is not executed"),
        ({"model_type": "llama", "num_attention_heads": "many"}, "transformers cannot read its config.json"),
        ({}, "transformers cannot read its config.json"),
        ([], "transformers cannot read its config.json"),
    ],
)
def test_model_that_cannot_be_trained_is_refused(config: Any, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=reason):
        require_trainable(tmp_path)


def test_dynamic_positions_with_a_fixed_base_are_accepted(tmp_path: Path) -> None:
    """HunYuan's, which change neither with the row nor between transformers and vLLM."""
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1}
    config = {"model_type": "hunyuan_v1_dense", "rope_theta": 10000.0, "rope_scaling": scaling, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    require_trainable(tmp_path)


def test_stated_reason_needs_no_import_of_transformers(tmp_path: Path) -> None:
    """It takes seconds."""
    for number, stated in enumerate(({"final_logit_softcapping": 30.0}, {"text_config": {"logit_scale": 0.0625}})):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({"model_type": "gemma2", **stated}))
        program = (
            "import sys; from pathlib import Path; from torl.components.hub import require_trainable\n"
            "try: require_trainable(Path(sys.argv[1]))\n"
            "except Exception as error: print(error, 'transformers' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", program, directory], capture_output=True, text=True, check=True)
        assert "a gemma2 model cannot be trained: its config sets" in done.stdout
        assert done.stdout.endswith("False\n")
