"""The predicted bytes of a model against those that DeepSpeed's tensors, meta tensors and autograd really take."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from deepspeed_memory import SHAPES, STAGES, model_config
from placement_models import QWEN_1_5B, QWEN_7B, QWEN_32B
from places import HELPERS
from saved_tensors import saved_bytes
from torl.base.errors import ConfigError
from torl.components.hub.shape import ModelShape
from torl.learner.model.attention import PACKED, attention_implementation
from torl.learner.model.lora import add_adapters
from torl.learner.model.policy import Critic
from torl.run.config import LoraConfig, TrainConfig
from torl.run.placement.learner_bytes import LearnerBytes
from torl.run.placement.states import States

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 500}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def meta_parameters(config: dict[str, Any]) -> int:
    """Parameters of transformers' model, which takes no memory."""
    fields = {name: value for name, value in config.items() if name != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **fields))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    "config",
    [
        QWEN_1_5B,
        QWEN_7B,
        QWEN_32B,
        {"model_type": "qwen3", **SMALL, **HEADS, "head_dim": 32, "tie_word_embeddings": False},
        {"model_type": "llama", **SMALL, **HEADS, "tie_word_embeddings": True},
        {"model_type": "llama", **SMALL, **HEADS, "attention_bias": True},
        {"model_type": "mistral", **SMALL, **HEADS, "head_dim": 24, "sliding_window": None},
    ],
    ids=lambda config: f"{config['model_type']}-{config['hidden_size']}",
)
def test_parameters_are_those_of_the_model_itself(config: dict[str, Any]) -> None:
    counted = meta_parameters(config)
    bias = config["hidden_size"] * config["num_hidden_layers"] * bool(config.get("attention_bias"))  # of its output
    assert ModelShape.from_config(config).parameters == counted - bias


@pytest.mark.parametrize("targets", [(), ("q_proj", "down_proj")])
def test_adapters_are_those_of_peft(targets: tuple[str, ...]) -> None:
    config = model_config(SHAPES[0])
    model = add_adapters(AutoModelForCausalLM.from_config(config), LoraConfig(rank=4, target_modules=targets), seed=0)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert ModelShape.from_config(config.to_dict()).adapter_parameters(4, targets) == trained


@pytest.mark.parametrize(("stage", "stays", "moves"), [(2, 2000, 20), (3, 0, 506)])
def test_shards_of_frozen_weights_move_at_stage_3(stage: int, stays: int, moves: int) -> None:
    states = States(parameters=10, stage=stage, itemsize=2, ranks=4, frozen_parameters=1000)
    assert (states.frozen, states.weights) == (stays, moves)


def test_a_model_of_another_kind_is_not_guessed_at() -> None:
    with pytest.raises(ConfigError, match=r"type 'mixtral' cannot be predicted; supported types: llama, mistral,"):
        ModelShape.from_config({"model_type": "mixtral"})


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "mistral"},
        {"model_type": "mistral", "sliding_window": 1024},
        {"model_type": "qwen2", "use_sliding_window": True},
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 512},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "qwen2", "sliding_window": 131072},
        {"model_type": "qwen3", "use_sliding_window": False},
        {"model_type": "llama"},
    ],
    ids=str,
)
def test_memory_of_models_with_sliding_windows_is_refused(settings: dict[str, Any]) -> None:
    """They are those that the learner does not compute with packed attention."""
    config = AutoConfig.for_model(**settings, **SMALL, **HEADS)
    if attention_implementation("sdpa", config) == PACKED:
        assert ModelShape.from_config(settings | SMALL | HEADS).layers == 3
    else:
        with pytest.raises(ConfigError, match="with sliding windows cannot be predicted"):
            ModelShape.from_config(settings | SMALL | HEADS)


def test_critic_of_a_run_with_adapters_is_trained_completely() -> None:
    config = TrainConfig.model_validate(
        {
            "run": {"directory": "run", "steps": 1},
            "model": {"path": "m", "lora": {"rank": 4}},
            "data": {"train": "unused.jsonl"},
            "algorithm": {"estimator": {"name": "ppo"}},
        }
    )
    shape = model_config(SHAPES[0])
    critic = Critic(AutoModelForCausalLM.from_config(shape))
    _, counted = LearnerBytes(config, ModelShape.from_config(shape.to_dict()), ranks=1).models
    assert counted.parameters == sum(each.numel() for each in critic.parameters() if each.requires_grad)
    assert counted.frozen_parameters == 0


def test_critic_of_another_size_is_counted(tmp_path: Path) -> None:
    shape = model_config(SHAPES[0])
    wider = AutoConfig.for_model(**shape.to_dict() | {"intermediate_size": 2 * shape.intermediate_size})
    wider.save_pretrained(tmp_path)
    config = TrainConfig.model_validate(
        {
            "run": {"directory": "run", "steps": 1},
            "model": {"path": "m"},
            "data": {"train": "unused.jsonl"},
            "algorithm": {"estimator": {"name": "ppo"}},
            "critic": {"path": str(tmp_path)},
        }
    )
    _, counted = LearnerBytes(config, ModelShape.from_config(shape.to_dict()), ranks=1).models
    assert counted.parameters == sum(
        each.numel() for each in Critic(AutoModelForCausalLM.from_config(wider)).parameters() if each.requires_grad
    )


DTYPES = ["bfloat16", "float32"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_deepspeed_memory_equals_the_prediction(ranks: int, tmp_path: Path) -> None:
    """Parameters, master copy, gradients and Adam's state, at stages 0, 2 and 3, for five models."""
    program = HELPERS / "deepspeed_memory.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TORCHDYNAMO_DISABLE": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", program, str(rank), str(ranks), str(tmp_path / "store"), *DTYPES],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks
    counted = [json.loads(line) for line in outputs[0].splitlines() if line.startswith("{")]
    assert len(counted) == len(SHAPES) * len(STAGES) * len(DTYPES)
    for row in counted:
        shape = ModelShape.from_config(model_config(SHAPES[row["shape"]]).to_dict())
        states = States(shape.parameters, row["stage"], 2 if row["dtype"] == "bfloat16" else 4, ranks)
        lasting = states.weights + states.master
        early = states.adam if (row["stage"], row["dtype"]) == (0, "bfloat16") else 0  # made at the start there
        kept = states.gradients if row["stage"] == 3 else 0
        predicted = {
            "start": lasting + early + kept,
            "first backward": lasting + early + states.gradients,
            "first step": lasting + states.adam + kept,
            "second backward": lasting + states.adam + states.gradients,
            "second step": lasting + states.adam + kept,
            "copy": shape.parameters * 12 / ranks,
        }
        for moment, size in predicted.items():
            assert row[moment] == pytest.approx(size, rel=0.05), (moment, row)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize(
    ("hidden", "intermediate", "heads", "keys"),
    [(256, 1024, 8, 2), (128, 512, 4, 4), (384, 2240, 12, 2), (320, 1728, 5, 1), (64, 128, 2, 2)],
)
def test_layer_saves_predicted_activations(
    hidden: int, intermediate: int, heads: int, keys: int, family: str, itemsize: int
) -> None:
    config = AutoConfig.for_model(
        family,
        vocab_size=100,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        head_dim=hidden // heads,
    )
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if itemsize == 2 else torch.float32)
    predicted = 64 * ModelShape.from_config(config.to_dict()).activation_bytes(itemsize)
    assert saved_bytes(model, 64) == pytest.approx(predicted, rel=0.05)
