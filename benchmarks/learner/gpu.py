"""Cost of a step on one GPU: the learner's update compared with the GPU's peak, and whole steps by tool calls.

    python -m benchmarks.learner.gpu [--hidden 1536 --intermediate 8960 --layers 28 --heads 12 --groups 2]
                                    [--peak-tflops 989]

Random weights of Qwen2.5-1.5B's shape, bfloat16, ZeRO-2 on one GPU. "update": optimizer steps on ragged samples, by a
rank of the learner in this process. MFU counts the model's own work, 6 FLOP for each parameter and token and the causal
half of the attention, not what gradient checkpointing computes again; a head works on sampled tokens alone.
`peak_vs_plan` is the most that torch had by what `torl plan` counts for an update. "steps": whole runs of the demo's
problems with this model, engine and learner on the same GPU, for C = 0, 1, 2 and 4 calls (random weights call no tool:
this is what allowing calls costs). The last line is JSON: `mfu`, `tokens_per_s`, `peak_bytes`, `peak_vs_plan`,
`step_seconds`.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import ROOT, settings_words
from benchmarks.learner.train_step_problem import ONE_RANK, SETTINGS, Sample, make_samples, write_model
from torl.base.types import TrainingSample
from torl.components.hub.shape import ModelShape
from torl.learner.batch import pack_batch
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.rank import Rank
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig, TrainConfig
from torl.run.config.loading import load_config
from torl.run.placement.learner_bytes import LearnerBytes

DEMO = ROOT / "python" / "torl" / "presets" / "demo.toml"
VOCABULARY = 151_936


def useful_flop(samples: list[Sample], shape: dict[str, int]) -> float:
    """Forward and backward of one step."""
    width = shape["hidden"] // shape["heads"]
    layer = shape["hidden"] * (2 * shape["hidden"] + 2 * shape["groups"] * width + 3 * shape["intermediate"])
    tokens = sum(len(sample.token_ids) for sample in samples)
    sampled = sum(int(sample.sampled.sum()) for sample in samples)
    pairs = sum(len(sample.token_ids) ** 2 / 2 for sample in samples)
    attention = 4 * pairs * shape["hidden"] * shape["layers"]
    return 3 * (2 * layer * shape["layers"] * tokens + 2 * shape["hidden"] * VOCABULARY * sampled + attention)


def update(
    directory: Path, samples: list[Sample], rows: int, recomputes: bool, rounds: int, on_cpu: bool
) -> dict[str, Any]:
    """Seconds of each optimizer step, and the most bytes that torch had."""
    os.environ |= ONE_RANK
    given = [
        TrainingSample(
            sample.token_ids,
            sample.sampled,
            sample.old_logprobs,
            np.where(sample.sampled, sample.advantage, 0).astype(np.float32),
        )
        for sample in samples
    ]
    learner = LearnerConfig(
        ranks=1,
        zero_stage=2,
        dtype="bfloat16",
        max_row_tokens=rows,
        gradient_checkpointing=recomputes,
        **SETTINGS,
    )
    setup = LearnerSetup(
        ModelConfig(path=str(directory)), learner, AlgorithmConfig(), CriticConfig(), 1.0, total_steps=1000, seed=0
    )
    with tempfile.TemporaryDirectory() as meeting:
        rank = Rank(RankSetup(setup, os.cpu_count() or 1, f"file://{meeting}/store"), 0, 1, lambda written: None)
        seconds = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            batch = pack_batch(given, max_row_tokens=rows, ranks=1)
            rank.update_policy(batch.rows[0], batch.sampled_tokens)  # ends with numbers from the GPU: no work is left
            seconds.append(time.perf_counter() - start)
        peak = 0 if on_cpu else torch.cuda.max_memory_allocated()
        rank.close()
    return {"seconds": seconds[1:], "peak_bytes": peak}


def planned_bytes(directory: Path, rows: int, recomputes: bool) -> int:
    """Torch's memory in the ledger, in the fuller of the stages "update" and "step"."""
    words = {"model.path": str(directory), "learner.max_row_tokens": str(rows)}
    words |= {"learner.dtype": "bfloat16", "learner.zero_stage": "2"}
    words["learner.gradient_checkpointing"] = str(recomputes).lower()
    learner = LearnerBytes(load_config(TrainConfig, DEMO, words), ModelShape.read(directory), 1)
    resident = learner.always() | learner.parameters() | learner.optimizer()
    del resident["context"]
    stages = (learner.backward(), learner.step())
    return sum(resident.values()) + max(sum(stage.values()) for stage in stages)


def step_seconds(directory: Path, calls: int, steps: int, on_cpu: bool) -> float:
    """The median step of a run that allows this many calls, without its first step."""
    with tempfile.TemporaryDirectory() as scratch:
        options = {
            "run.directory": f"{scratch}/run",
            "run.steps": steps,
            "model.path": directory,
            "rollout.max_tool_calls": calls,
            "rollout.prompts_per_step": 2 if on_cpu else 32,
            "rollout.samples_per_prompt": 2 if on_cpu else 16,
            "rollout.max_response_tokens": 16 if on_cpu else 1024,
            "selection.groups.zero_variance": "false",
            "algorithm.entropy_bonus": 1e-4,
            "evaluation.every_steps": 0,
            "evaluation.max_problems": 1,
            "checkpoint.every_steps": 0,
            "engine.dtype": "bfloat16",
            "learner.dtype": "bfloat16",
            "learner.zero_stage": 2,
            "learner.max_row_tokens": 16384,
        }
        if not on_cpu:
            options |= {
                "engine.gpu_memory_utilization": 0.5,
                "engine.sleep_while_learning": "true",
                "learner.offload": "while_sampling",
            }
        command = [sys.executable, "-m", "torl.train", str(DEMO), *settings_words(options)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        rows = [json.loads(line) for line in Path(scratch, "run", "metrics.jsonl").read_text().splitlines()]
    return statistics.median([row["time/step"] for row in rows if "time/step" in row][1:])


def main() -> None:
    """Print a line for each part, then the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"hidden": 1536, "intermediate": 8960, "layers": 28, "heads": 12, "groups": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="peak of the GPU in bfloat16 (default: H100)")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--response-tokens", type=int, default=600, help="the median")
    parser.add_argument("--max-row-tokens", type=int, default=16384)
    parser.add_argument("--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--calls", type=int, nargs="*", default=[0, 1, 2, 4])
    parser.add_argument("--on-cpu", action="store_true", help="a dry run: the numbers say nothing")
    arguments = parser.parse_args()
    if not (arguments.on_cpu or torch.cuda.is_available()):
        sys.exit("no GPU: torch.cuda.is_available() is false (--on-cpu tries whether everything runs)")
    shape = {name: getattr(arguments, name) for name in ("hidden", "intermediate", "layers", "heads", "groups")}
    samples = make_samples(arguments.samples, arguments.response_tokens, 3072, VOCABULARY)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        parameters = write_model(directory, vocabulary=VOCABULARY, dtype=torch.bfloat16, **shape)
        rows, recomputes = arguments.max_row_tokens, arguments.gradient_checkpointing
        found = update(directory, samples, rows, recomputes, arguments.rounds, arguments.on_cpu)
        seconds = min(found["seconds"])
        tokens = sum(len(sample.token_ids) for sample in samples)
        result: dict[str, Any] = {
            "device": "cpu" if arguments.on_cpu else torch.cuda.get_device_name(),
            "parameters": parameters,
            "mfu": useful_flop(samples, shape) / seconds / (arguments.peak_tflops * 1e12),
            "tokens_per_s": tokens / seconds,
            "update_seconds": seconds,
            "peak_bytes": found["peak_bytes"],
            "peak_vs_plan": found["peak_bytes"] / planned_bytes(directory, rows, recomputes),
        }
        print(result, flush=True)
        gc.collect()
        torch.cuda.empty_cache()  # does nothing on a CPU
        result["step_seconds"] = {
            calls: step_seconds(directory, calls, arguments.steps, arguments.on_cpu) for calls in arguments.calls
        }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
