"""Inputs and outputs of the sides of `train_step.py` and `pretrained/speed.py`: model, ragged batch, single steps."""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

CLIP = 0.2
ONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}  # as a launcher says it
SETTINGS: dict[str, Any] = {"learning_rate": 1e-6, "betas": (0.9, 0.999), "weight_decay": 0.01, "gradient_clip": 1.0}


@dataclass(frozen=True)
class Sample:
    """A prompt, then what was sampled with observations in between; arrays of one length, but `advantage`."""

    token_ids: np.ndarray
    prompt_tokens: int
    sampled: np.ndarray
    old_logprobs: np.ndarray
    advantage: float


def make_samples(
    count: int, response_tokens: int, longest: int, vocabulary: int, seed: int = 0, group_size: int = 1
) -> list[Sample]:
    """Prompts of 40 to 150 tokens; responses lognormal around `response_tokens`, a tenth of them observations.

    Each prompt has `group_size` responses, one after another.
    """
    generator = np.random.default_rng(seed)
    samples: list[Sample] = []
    for index in range(count):
        prompt = int(generator.integers(40, 151)) if index % group_size == 0 else samples[-1].prompt_tokens
        response = int(np.clip(generator.lognormal(np.log(response_tokens), 0.7), 16, longest))
        sampled = np.arange(prompt + response) >= prompt
        for _ in range(generator.integers(0, 3)):
            start = prompt + int(generator.integers(1, response - 8))
            sampled[start : min(start + response // 10, prompt + response - 1)] = False
        old = -np.log(vocabulary) + generator.normal(0, 0.3, prompt + response)
        ids = generator.integers(5, vocabulary - 300, prompt + response)
        if index % group_size:
            ids[:prompt] = samples[-1].token_ids[:prompt]
        samples.append(Sample(ids, prompt, sampled, np.where(sampled, old, 0), float(generator.normal())))
    return samples


def write_samples(samples: list[Sample], path: Path) -> None:
    """Write samples as JSON."""
    rows = [{name: getattr(value, "tolist", lambda v=value: v)() for name, value in vars(s).items()} for s in samples]
    path.write_text(json.dumps(rows))


def read_samples(path: Path) -> list[Sample]:
    """Read the samples that `write_samples` wrote."""
    return [
        Sample(
            np.array(row["token_ids"], np.int32),
            row["prompt_tokens"],
            np.array(row["sampled"], np.bool_),
            np.array(row["old_logprobs"], np.float32),
            row["advantage"],
        )
        for row in json.loads(path.read_text())
    ]


def write_model(
    directory: Path,
    *,
    hidden: int,
    layers: int,
    vocabulary: int,
    intermediate: int,
    heads: int,
    groups: int,
    dtype: "torch.dtype | None" = None,
) -> int:
    """Random Qwen2 with a tied head and a tokenizer as large, in float32 by default. Returns the number
    of parameters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).to(dtype)
    model.save_pretrained(directory)
    # Bytes, pairs and triples of bytes: as many as the model has rows, less a few as in real models.
    end, alphabet = "<|endoftext|>", sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(first, second) for first in alphabet for second in alphabet]
    triples = ((first + second, third) for first, second in pairs for third in alphabet)
    merges = list(islice(chain(pairs, triples), max(0, vocabulary - 600)))
    tokens = [end, *alphabet, *(first + second for first, second in merges)]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end).save_pretrained(directory)
    return int(model.num_parameters())


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a side that trains other weights than those of `train_step.py`."""
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--lora-rank", type=int, default=0, help="0 trains all weights (default %(default)s)")
    parser.add_argument("--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=True)


def peak_bytes(process: int | str = "self") -> int:
    """The most that a process has ever had in memory; 0 for a process that has exited."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def wait_for_turn() -> bool:
    """Until the benchmark asks for a step; False when it wants no more."""
    return bool(sys.stdin.readline().strip())


def report(**values: Any) -> None:
    """One line for the benchmark; everything else a side prints is not read."""
    print("@" + json.dumps(values), flush=True)


def serve(step: Callable[[], dict[str, float]]) -> None:
    """One step, timed, for each turn."""
    report(ready=True)
    while wait_for_turn():
        start, processor_start = time.perf_counter(), time.process_time()
        values = step()
        seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
        report(seconds=seconds, processor_seconds=processor_seconds, peak_bytes=peak_bytes(), **values)
