"""One optimizer step of torl, TRL's `GRPOTrainer` and verl's actor: the same model, same ragged samples, one machine.

    make peers && python -m benchmarks.learner.train_step [--peers .venv/peers/bin/python] [--rounds 3]

A random model of Qwen2's shape with about 100 million parameters and a vocabulary of 151,936, float32 on the CPU,
gradient checkpointing on all sides, the clipped loss as a mean over sampled tokens, old log-probabilities given. Each
side is a separate process with all cores; they take turns, one step each, `--rounds` times after one that is not
counted. Times are the best of the rounds, tokens are those of the samples (padding is not counted, and a prompt counts
for each of its samples), memory is the most that a process ever had. A peer that is not installed is left out and
reported. The last line is JSON: `vs_trl` and `vs_verl` are torl's tokens per second by theirs, `processor_vs_trl` and
`processor_vs_verl` the same of processor time, which other work on the machine touches less, `memory_vs_trl` and
`memory_vs_verl` torl's peak by theirs, `loss_difference` the largest difference between torl's first loss and theirs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import PEERS_PYTHON
from benchmarks.learner.train_step_problem import make_samples, write_model, write_samples


class Side:
    """A process that makes an optimizer step whenever it is its turn."""

    def __init__(
        self, name: str, python: str, directory: Path, options: list[str], program: str = "learner.train_step"
    ) -> None:
        self.name, self.steps = name, list[dict[str, float]]()
        self.log = directory / f"{name}.log"
        command = [python, "-m", f"benchmarks.{program}_{name}", str(directory), *options]
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self._answer()

    def step(self) -> None:
        """One more."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.steps.append(self._answer())

    def close(self) -> None:
        """No more turns."""
        self.process.communicate()

    def _answer(self) -> dict[str, float]:
        """Its next answer. Raises `RuntimeError` with the end of the side's log if it has died."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@"):
                answer: dict[str, float] = json.loads(line[1:])
                return answer
        raise RuntimeError(f"{self.name} has ended:\n{self.log.read_text()[-3000:]}")

    def best(self, times: str) -> float:
        """The least of the steps that count."""
        return min(step[times] for step in self.steps[1:])

    @property
    def peak(self) -> float:
        return max(step["peak_bytes"] for step in self.steps)


def take_turns(sides: list[Side], rounds: int) -> None:
    """Let each side make a round that is not counted, then those that are, and end all."""
    for number in range(1 + rounds):
        for side in sides:
            side.step()
            print(f"{side.name}, round {number}: {side.steps[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    for side in sides:
        side.close()


def installed(python: str, package: str) -> bool:
    """Whether this interpreter exists and finds the package."""
    check = f"import sys; from importlib.util import find_spec; sys.exit(find_spec({package!r}) is None)"
    return Path(python).exists() and subprocess.run([python, "-c", check], check=False).returncode == 0


def main() -> None:
    """Print a line for each side, then the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=str(PEERS_PYTHON), help="interpreter of the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=1, help="samples with the same prompt")
    parser.add_argument("--response-tokens", type=int, default=160, help="the median")
    parser.add_argument("--longest", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--max-row-tokens", type=int, default=2048, help="maximum tokens per row, for torl and verl")
    parser.add_argument(
        "--micro-batch", type=int, default=8, help="samples of a micro-batch of TRL, whose default it is"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        sizes = arguments.samples, arguments.response_tokens, arguments.longest, arguments.vocabulary
        samples = make_samples(*sizes, group_size=arguments.group_size)
        write_samples(samples, directory / "samples.json")
        hidden = arguments.hidden
        shape = {"intermediate": hidden * 11 // 4, "heads": hidden // 64, "groups": max(1, hidden // 256)}
        shape |= {name: getattr(arguments, name) for name in ("hidden", "layers", "vocabulary")}
        parameters = write_model(directory / "model", **shape)
        tokens = sum(len(sample.token_ids) for sample in samples)
        sampled = sum(int(sample.sampled.sum()) for sample in samples)
        print(f"{parameters:,} parameters, {len(samples)} samples, {tokens:,} tokens, {sampled:,} of them sampled")
        options = [
            word
            for name in ("threads", "max_row_tokens", "micro_batch")
            for word in (f"--{name.replace('_', '-')}", str(getattr(arguments, name)))
        ]
        sides = [Side("torl", sys.executable, directory, options)]
        for peer in ("trl", "verl"):
            if installed(arguments.peers, peer):
                sides.append(Side(peer, arguments.peers, directory, options))
            else:
                print(f"{peer}: not installed for {arguments.peers} (make peers)")
        take_turns(sides, arguments.rounds)
        for side in sides:
            print(
                f"{side.name}: {side.best('seconds'):.2f} s, {side.best('processor_seconds'):.2f} s of processor time, "
                f"{tokens / side.best('seconds'):,.0f} tokens/s, {side.peak / 1e9:.2f} GB, "
                f"loss {side.steps[0]['loss']:.7f}, gradient norm {side.steps[0]['gradient_norm']:.5f}"
            )
            result[side.name] = {"tokens_per_s": tokens / side.best("seconds"), "steps": side.steps}
        ours, peers = sides[0], sides[1:]
        for peer in peers:
            result[f"vs_{peer.name}"] = peer.best("seconds") / ours.best("seconds")
            result[f"processor_vs_{peer.name}"] = peer.best("processor_seconds") / ours.best("processor_seconds")
            result[f"memory_vs_{peer.name}"] = ours.peak / peer.peak
        if peers:
            first = ours.steps[0]["loss"]
            result["loss_difference"] = max(abs(peer.steps[0]["loss"] - first) for peer in peers)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
