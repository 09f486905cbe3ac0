"""Parts of `speed.py` that are commands: a run of `torl train`, and a batch with calls by `rollout/tool_calls.py`."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torl
from benchmarks import ROOT, settings_words
from benchmarks.learner.train_step_problem import peak_bytes
from torl.components.engine.vllm.processes import with_descendants
from torl.run.records import metric_names as names

STAGES = {
    "step": names.TIME_STEP,
    "rollout": names.TIME_ROLLOUT,
    "reward": names.TIME_REWARD,
    "train": names.TIME_LEARN,
    "weight_sync": names.TIME_SYNC,
}
CALLS = {"eight_calls": "c8_wait50ms", "sixteen_calls": "c16_wait50ms"}
_LEARNER = "torl.learner.worker"
_POLL_SECONDS = 0.5


def parity(trajectory: torl.Trajectory) -> float:
    """A reward that differs within groups, regardless of the model: otherwise a step would have nothing to learn."""
    return float(len(trajectory) % 2)


def train(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run `torl train`, and return seconds of its stages and peaks of its processes.

    Seconds are medians over the steps after the first, which warms up; `step` lasts from the first prompt to the new
    weights.

    Raises:
        RuntimeError: The command failed; the message has the end of its output.
    """
    log = directory / "train.log"
    words = settings_words(settings(directory, options))
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])  # for `parity`
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(paths)}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "torl", "train", "demo", *words], stdout=output, stderr=output, env=environment
        )
    peaks = watch_peaks(process)
    if process.returncode:
        raise RuntimeError(f"torl train failed:\n{log.read_text()[-3000:]}")
    return summarize(list(torl.Run(directory / "run").metrics)) | {
        f"{side}_bytes": peak for side, peak in peaks.items()
    }


def settings(directory: Path, options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the run, as text."""
    return {
        "model.path": str(directory / "model"),
        "model.lora.rank": str(options.lora_rank),
        "data.template": options.template,
        "run.steps": str(options.steps),
        "run.directory": str(directory / "run"),
        "rollout.prompts_per_step": str(options.prompts),
        "rollout.samples_per_prompt": str(options.samples),
        "rollout.max_response_tokens": str(options.response_tokens),
        "reward.parts": '{ parity = { name = "benchmarks.pretrained.training:parity" } }',
        "engine.dtype": options.dtype,
        "engine.cpu_threads": str(options.threads),
        "engine.cpu_kv_cache_gib": str(options.cache_gib),
        "learner.dtype": options.dtype,
        "learner.learning_rate": "1e-6",
        "learner.max_row_tokens": str(options.max_row_tokens),
        "learner.gradient_checkpointing": str(options.gradient_checkpointing).lower(),
        "evaluation.every_steps": "0",
        "data.evaluation": "{}",
        "checkpoint.every_steps": "0",
    }


def watch_peaks(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """Wait for a run, and return the peaks of its learner and of the largest of its other processes, the engine's core.

    The kernel keeps a process's own peak, so only processes that live for less than a poll are missed.
    """
    peaks = {"engine": 0, "learner": 0}
    while process.poll() is None:
        for each in with_descendants([process.pid]):
            if each.pid != process.pid:
                side = "learner" if _LEARNER in command_line(each.pid) else "engine"
                peaks[side] = max(peaks[side], peak_bytes(each.pid))
        time.sleep(_POLL_SECONDS)
    return peaks


def command_line(pid: int) -> str:
    """Return the command line of a process; empty for one that has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def summarize(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median seconds of each stage from the metrics of a run, and the number of these steps."""
    steps = [row for row in rows if names.TIME_STEP in row][1:]
    if not steps:
        raise ValueError("a run has no step after the first: --steps must be at least 2")
    return {
        "seconds": {stage: median(row[name] for row in steps) for stage, name in STAGES.items()},
        "steps": len(steps),
    }


def play_calls(model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run `rollout/tool_calls.py`, and return the seconds of batches with calls, relative to a batch without.

    Its standard error is not captured: it shows the seconds of each batch during a run of an hour.

    Raises:
        RuntimeError: The command failed.
    """
    command = [sys.executable, "-m", "benchmarks.rollout.tool_calls", "--model", str(model), "--dtype", options.dtype]
    command += ["--rounds", str(options.rounds), "--in-flight", str(options.call_sequences)]
    command += ["--tokens", str(options.call_tokens), "--cache-gib", str(options.cache_gib)]
    command += ["--only", "c0", *CALLS.values(), "c0", *CALLS.values()]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ)
    if ended.returncode:
        raise RuntimeError(f"rollout/tool_calls.py failed with exit status {ended.returncode}")
    found = json.loads(ended.stdout.splitlines()[-1])
    ratios = {name: found[f"ratio_{variant}"] for name, variant in CALLS.items()}
    return ratios | {"samples_s": found["samples_s"], "tokens_per_s": found["tokens_per_s"]}
