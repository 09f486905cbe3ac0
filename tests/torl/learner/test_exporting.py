"""Model directories from a stream of weights: transformers loads them, and few weights are in memory at a time."""

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from torl.base.errors import CheckpointError
from torl.learner import exporting
from torl.learner.exporting import export_model


@pytest.fixture
def model(tmp_path: Path) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.config.save_pretrained(tmp_path / "source")
    return model


@pytest.mark.parametrize(("limit", "files"), [(1 << 30, 1), (12_000, 6), (1, 39)])
def test_transformers_loads_the_files(
    model: Qwen2ForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, files: int
) -> None:
    monkeypatch.setattr(exporting, "MAX_FILE_BYTES", limit)
    directory = tmp_path / "model"
    directory.mkdir()
    for name in ("model.safetensors", "model-00007-of-00009.safetensors", "model.safetensors.index.json"):
        (directory / name).write_text("of an earlier export")
    export_model(model.state_dict().items(), tmp_path / "source", directory)
    assert len(list(directory.glob("*.safetensors"))) == files
    assert (directory / "model.safetensors.index.json").exists() == (files > 1)
    loaded = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    found = loaded.state_dict()
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], weight) for name, weight in model.state_dict().items())


def test_config_states_the_precision_of_most_weights(tmp_path: Path) -> None:
    """The export of a learner in bfloat16, whose initial model is in float32 and has a bias in float32."""
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}')
    weights = [("bias", torch.zeros(4)), ("matrix", torch.zeros(8, 8, dtype=torch.bfloat16))]
    export_model(weights, tmp_path, tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text()) == {"dtype": "bfloat16"}


def test_memory_is_that_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MAX_FILE_BYTES", 4000)
    (tmp_path / "config.json").write_text("{}")
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def weights() -> Iterator[tuple[str, Tensor]]:
        nonlocal most
        for number in range(40):
            tensor = torch.zeros(250)
            alive.append(weakref.ref(tensor))
            most = max(most, sum(each() is not None for each in alive))
            yield f"weight {number}", tensor

    export_model(weights(), tmp_path, tmp_path / "model")
    assert most <= 6  # four of a file, the next, and the one that is being made


def test_a_failure_exhausts_the_weights(tmp_path: Path) -> None:
    """Other ranks gather each of them with this one."""
    (tmp_path / "model").write_text("a file")
    weights = iter([("first", torch.zeros(2)), ("second", torch.zeros(2))])
    with pytest.raises(CheckpointError, match=r"could not be exported to .*model: .*exists"):
        export_model(weights, tmp_path, tmp_path / "model")
    assert next(weights, None) is None


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 7, "pad_token_id": 3}, None, {"eos_token_id": [7, 9], "pad_token_id": 3}),
        ({"eos_token_id": 7}, {"eos_token_id": 8, "top_k": 5}, {"eos_token_id": [8, 7, 9], "top_k": 5}),
        ({}, {"eos_token_id": [9, 7]}, {"eos_token_id": [9, 7]}),
        ({}, {"eos_token_id": None}, {"eos_token_id": [7, 9]}),
    ],
)
def test_end_tokens_of_the_run_are_added_to_those_of_the_model(
    config: dict[str, Any], generation: dict[str, Any] | None, expected: dict[str, Any], tmp_path: Path
) -> None:
    """`GenerationConfig` of transformers reads them."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    export_model([("weight", torch.zeros(4))], tmp_path, tmp_path / "model", [7, 9])
    written = json.loads((tmp_path / "model/generation_config.json").read_text())
    assert written == expected
    assert GenerationConfig.from_pretrained(tmp_path / "model").eos_token_id == expected["eos_token_id"]
    export_model([("weight", torch.zeros(4))], tmp_path / "model", tmp_path / "again")
    assert json.loads((tmp_path / "again/generation_config.json").read_text()) == expected
