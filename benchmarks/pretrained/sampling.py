"""Names, options and memory that both sides of `speed.py` for sampling share."""

import argparse
from pathlib import Path

from benchmarks.learner.train_step_problem import peak_bytes
from torl.components.engine.vllm.processes import with_descendants

REQUESTS, SAMPLES = "requests.json", "samples.json"
MAX_PROMPT_TOKENS = 512


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the engine and of its responses."""
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--response-tokens", type=int, required=True, help="maximum tokens of a response")
    parser.add_argument("--max-sequences", type=int, required=True)
    parser.add_argument("--cache-gib", type=int, required=True)


def engine_peak_bytes(parent: int) -> int:
    """Return the largest peak of a child process, which the engine's core has by far."""
    peaks = (peak_bytes(process.pid) for process in with_descendants([parent]) if process.pid != parent)
    return max(peaks, default=0)
