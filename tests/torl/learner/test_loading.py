"""A model is read once and handed out: under ZeRO-3 no rank ever holds all of it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BloomConfig, BloomForCausalLM, Qwen2Config, Qwen2ForCausalLM

from learner_fixtures import VOCABULARY, start_learner, write_tiny_model
from model_families import FAMILIES
from rank_forks import call_forked
from rank_loading import constants_of_sharded_models, measure_loading
from torl.base.errors import DataError
from torl.run.config import AlgorithmConfig


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


@pytest.mark.parametrize("role", ["policy", pytest.param("reference", marks=pytest.mark.slow)])
async def test_ranks_refuse_a_model_that_mixes_packed_samples(role: str, tmp_path: Path) -> None:
    """No rule about configurations names the model: what it computes shows it."""
    model, bloom = write_tiny_model(tmp_path / "model"), tmp_path / "bloom"
    BloomForCausalLM(
        BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2)
    ).save_pretrained(bloom)
    kl = {"coefficient": 0.1, "path": str(bloom)}
    algorithm = AlgorithmConfig.model_validate({"kl": kl} if role == "reference" else {})
    with pytest.raises(DataError, match="a bloom model cannot be trained: the samples of a packed row affect"):
        await start_learner(model if role == "reference" else bloom, tmp_path / "logs", algorithm=algorithm)


def test_sharded_models_have_exact_constants(tmp_path: Path) -> None:
    """Frequencies of rotary positions above all. DeepSpeed rounds what is created while it shards a model."""
    tokens = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    configs = [AutoConfig.for_model(family, **sizes, **tokens) for family, sizes in FAMILIES.items()]
    counted = 0
    for constants in call_forked(constants_of_sharded_models, configs, str(tmp_path / "meeting")):
        for sharded, plain in constants.values():
            assert sharded == plain
            counted += plain[0] == "torch.float32"
    assert counted >= 2 * (len(FAMILIES) - 1)  # gpt2 has learned positions
