"""One optimizer step of fine-tuning by torl and by TRL's `SFTTrainer`: same model, same ragged examples, one machine.

    make peers && python -m benchmarks.learner.finetune [--peers .venv/peers/bin/python] [--rounds 3]

A random model of Qwen2's shape with about 100 million parameters and a vocabulary of 151,936, float32 on the CPU, and
gradient checkpointing on both sides, which is TRL's default. Examples have a prompt and observations without a loss.
TRL pads the examples of a micro-batch, as it does by default; torl packs them. Each side is a separate process with all
cores; they take turns, one step each, `--rounds` times after one that is not counted. Times are the best of the rounds,
tokens are those of the examples (padding is not counted), memory is the most that a process ever had. The last line is
JSON: `vs_trl` is torl's tokens per second by TRL's, `processor_vs_trl` the same of processor time, which other work on
the machine touches less, `memory_vs_trl` torl's peak by TRL's, `loss_difference` the largest difference between the
losses of all steps.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import PEERS_PYTHON
from benchmarks.learner.train_step import Side, installed, take_turns
from benchmarks.learner.train_step_problem import make_samples, write_model, write_samples


def main() -> None:
    """Print a line for each side, then the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=str(PEERS_PYTHON), help="interpreter of the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=16)
    parser.add_argument("--response-tokens", type=int, default=160, help="the median")
    parser.add_argument("--longest", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--max-row-tokens", type=int, default=2048, help="maximum tokens per row, for torl")
    parser.add_argument(
        "--micro-batch", type=int, default=8, help="examples of a micro-batch of TRL, whose default it is"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    if not installed(arguments.peers, "trl"):
        sys.exit(f"TRL is not installed for {arguments.peers} (make peers)")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        samples = make_samples(arguments.examples, arguments.response_tokens, arguments.longest, arguments.vocabulary)
        write_samples(samples, directory / "samples.json")
        hidden = arguments.hidden
        shape = {"intermediate": hidden * 11 // 4, "heads": hidden // 64, "groups": max(1, hidden // 256)}
        shape |= {name: getattr(arguments, name) for name in ("hidden", "layers", "vocabulary")}
        parameters = write_model(directory / "model", **shape)
        tokens = sum(len(sample.token_ids) for sample in samples)
        trained = sum(int(sample.sampled.sum()) for sample in samples)
        print(f"{parameters:,} parameters, {len(samples)} examples, {tokens:,} tokens, {trained:,} of them trained")
        options = ["--threads", str(arguments.threads), "--micro-batch", str(arguments.micro_batch)]
        options += ["--max-row-tokens", str(arguments.max_row_tokens)]
        interpreters = {"torl": sys.executable, "trl": arguments.peers}
        sides = [Side(name, python, directory, options, "learner.finetune") for name, python in interpreters.items()]
        take_turns(sides, arguments.rounds)
        result: dict[str, Any] = {}
        for side in sides:
            print(
                f"{side.name}: {side.best('seconds'):.2f} s, {side.best('processor_seconds'):.2f} s of processor time, "
                f"{tokens / side.best('seconds'):,.0f} tokens/s, {side.peak / 1e9:.2f} GB, "
                f"losses {', '.join(format(step['loss'], '.6f') for step in side.steps)}"
            )
            result[side.name] = {"tokens_per_s": tokens / side.best("seconds"), "steps": side.steps}
        ours, theirs = sides
        result["vs_trl"] = theirs.best("seconds") / ours.best("seconds")
        result["processor_vs_trl"] = theirs.best("processor_seconds") / ours.best("processor_seconds")
        result["memory_vs_trl"] = ours.peak / theirs.peak
        losses = zip(ours.steps, theirs.steps, strict=True)
        result["loss_difference"] = max(abs(first["loss"] - second["loss"]) for first, second in losses)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
