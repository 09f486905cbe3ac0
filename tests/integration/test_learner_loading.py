"""A model is read once and handed out: under ZeRO-3 no rank ever holds all of it."""

from pathlib import Path

import pytest
import torch
from rank_forks import call_forked
from rank_loading import measure_loading
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM


@pytest.mark.parametrize("names", ["its own", pytest.param("others", marks=pytest.mark.slow)])
def test_no_rank_holds_the_whole_model(names: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=500,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(tmp_path / "model")
    if names == "others":  # as a model's trunk names them, which transformers knows how to read
        weights = load_file(tmp_path / "model" / "model.safetensors")
        renamed = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        save_file(renamed, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    whole = sum(parameter.nbytes for parameter in model.parameters())
    squares = sum(float(parameter.detach().double().square().sum()) for parameter in model.parameters())
    measured = call_forked(measure_loading, str(tmp_path / "model"), str(tmp_path / "meeting"))
    for rank, grown, held, total, tensors in measured:
        assert held < 0.51 * whole
        assert tensors == len(list(model.parameters()))
        assert total == pytest.approx(squares, rel=1e-9)
        if names == "its own" or rank > 0:
            assert grown < 0.85 * whole, f"rank {rank}"
