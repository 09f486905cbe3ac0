"""The weights of pre-trained models: conversion, and log-probabilities of engine and learner."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import torl
from gguf_weights import weights_of
from settings_for_real import is_large, settings
from torl.api.event_loop import BackgroundLoop
from torl.base.paths import resolve_path
from torl.base.types import TrainingSample
from torl.components.hub.packages import PACKAGE_MODEL_PREFIX, PACKAGED_MODELS, _installed_parts, _join
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.reading import read_rows
from torl.training.samples import training_samples
from torl.training.trial import try_run

# Rounding of bfloat16 in engine and learner; one wrong weight in one of them exceeds the mean.
BFLOAT16_MEAN, BFLOAT16_MAX, FLOAT32_MAX = 0.06, 3.0, 1e-4


def test_weights_are_those_of_the_quantized_file(model: str, directory: Path, tmp_path: Path) -> None:
    if not model.startswith(PACKAGE_MODEL_PREFIX):
        pytest.skip("the model was not converted")
    package = PACKAGED_MODELS[model.removeprefix(PACKAGE_MODEL_PREFIX)]
    _join(model, package, _installed_parts(model, package), tmp_path / "model.gguf")
    converted = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    found = dict(converted.named_parameters())
    for name, weight in weights_of(tmp_path / "model.gguf", converted.config):
        assert torch.equal(found.pop(name), torch.tensor(weight).to(torch.bfloat16)), name
    assert not found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_engine_and_learner_agree_on_the_logprobs(model: str, template: str, dtype: str, tmp_path: Path) -> None:
    if is_large(model) and dtype == "float32":
        pytest.skip("1.8 billion parameters in float32, twice, with an optimizer: 30 GB")
    changes = {"engine.dtype": dtype, "learner.dtype": dtype, "model.lora.rank": 8 if is_large(model) else 0}
    config = load_config(TrainConfig, find_config("demo"), settings(model, template, tmp_path / "run") | changes)
    with Console() as console, BackgroundLoop() as loop:
        found = loop.call(try_run(config, console, problems=4, samples=4))
    assert found["mixed"] > 0
    if dtype == "float32":
        assert found["logprob_gap_max"] <= FLOAT32_MAX
    else:
        assert found["logprob_gap_mean"] <= BFLOAT16_MEAN
        assert found["logprob_gap_max"] <= BFLOAT16_MAX


def test_the_bound_of_bfloat16_finds_one_wrong_weight(model: str, directory: Path, template: str) -> None:
    rows = islice(read_rows(resolve_path("torl:demo/problems/heldout.jsonl")), 4)
    groups = torl.sample(
        model,
        [row["problem"] for row in rows],
        samples_per_problem=2,
        data={"template": template},
        engine={"dtype": "bfloat16"},
        rollout={"max_response_tokens": 32, "max_tool_calls": 0},
    )
    samples = training_samples([member for group in groups for member in group.members])
    causal_lm = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    right = logprob_gaps(causal_lm, samples)
    assert right.mean() <= BFLOAT16_MEAN
    assert right.max() <= BFLOAT16_MAX
    layers = causal_lm.model.layers
    middle = len(layers) // 2
    layers[middle].mlp.down_proj.weight = layers[middle - 1].mlp.down_proj.weight
    wrong = logprob_gaps(causal_lm, samples)
    assert wrong.mean() > BFLOAT16_MEAN, f"{right.mean()} and {wrong.mean()}"


def logprob_gaps(causal_lm: Any, samples: Sequence[TrainingSample]) -> np.ndarray:
    """Return |transformers' logprob - engine's logprob| of the sampled tokens, in nats."""
    gaps = []
    for sample in samples:
        ids, sampled = torch.from_numpy(sample.token_ids).long(), torch.from_numpy(sample.loss_mask)[1:]
        with torch.no_grad():
            logprobs = causal_lm(ids[None]).logits[0, :-1].float().log_softmax(-1)
        found = logprobs.gather(1, ids[1:, None])[:, 0] - torch.from_numpy(sample.rollout_logprobs)[1:]
        gaps.append(found[sampled].abs().numpy())
    return np.concatenate(gaps)
