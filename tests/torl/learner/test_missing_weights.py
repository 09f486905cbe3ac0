"""Model directories whose files lack weights, which transformers would initialize with random values."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPTJConfig

from learner_fixtures import write_tiny_model
from torl.base.errors import DataError
from torl.learner.deepspeed_engine import load_causal_lm
from torl.run.config import LearnerConfig, ModelConfig

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, source: None)


def write(directory: Path, missing: list[str], *, tied: bool = False) -> dict[str, torch.Tensor]:
    """Write a model without some of its weights, and return all of them."""
    write_tiny_model(directory, tied=tied)
    weights = load_file(directory / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if name not in missing}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})
    return weights


def load(directory: Path, *, needs_head: bool = True) -> dict[str, torch.Tensor]:
    settings = LearnerConfig(dtype="float32")
    model = load_causal_lm(ModelConfig(path=str(directory)), settings, CPU, needs_head=needs_head)
    return dict(model.named_parameters())


@pytest.mark.parametrize("needs_head", [True, False])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight"])
def test_missing_weight_is_named(name: str, needs_head: bool, tmp_path: Path) -> None:
    write(tmp_path, [name])
    with pytest.raises(DataError, match=f"its files lack 1 tensors of the model: {name}"):
        load(tmp_path, needs_head=needs_head)


def test_model_without_packed_attention_is_refused(tmp_path: Path) -> None:
    GPTJConfig(vocab_size=50, n_embd=32, n_layer=1, n_head=2, rotary_dim=8).save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"cannot create a gptj model .* model\.attention = 'eager' may be supported"):
        load(tmp_path)


def test_only_a_critic_may_lack_the_head(tmp_path: Path) -> None:
    weights = write(tmp_path, ["lm_head.weight"])
    with pytest.raises(DataError, match=r"its files lack 1 tensors of the model: lm_head\.weight"):
        load(tmp_path)
    loaded = load(tmp_path, needs_head=False)
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items() if name != "lm_head.weight")


def test_tied_head_is_not_missing(tmp_path: Path) -> None:
    weights = write(tmp_path, [], tied=True)
    assert "lm_head.weight" not in weights
    loaded = load(tmp_path)
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())
    # The same through transformers, as for files with other names.
    renamed = {name.removeprefix("model."): weight for name, weight in weights.items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = load(tmp_path)
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())
