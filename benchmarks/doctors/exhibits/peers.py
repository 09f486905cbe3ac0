"""Public doctors of other projects, each in a separate environment, on the same runs.

Each gets the input that it asks for, written from the run's records: rldoctor and rlprobe the numbers of each step,
martingale the log-probabilities of engine and learner of every recorded token. All are called after each step.

rlprobe looks at runs of 30 steps or more; its guard is lowered to 10, so that it says something about these runs. An
environment is made with `python3 -m venv DIR/NAME && DIR/NAME/bin/pip install NAME`.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final

import numpy as np

from torl.base.types import FinishReason
from torl.run.records.files import step_of_file, training_files
from torl.run.records.reading import read_metrics, read_trajectories
from torl.run.records.receipt import read_receipt
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.run_directory import read_config
from torl.run.records.tokens import TokenKey, read_token_numbers

PROGRAMS: Final = Path(__file__).parent / "peer_programs"
PEERS: Final = ("rldoctor", "rlprobe", "martingale")


def score_peers(directory: Path, environments: Path) -> dict[str, dict[str, int]]:
    """Return the alarms of each installed doctor, each with the number of steps after which it was first given."""
    temperature = read_config(directory).rollout.temperature
    text = json.dumps({"rows": list(rows(directory)), "tokens": list(tokens(directory)), "temperature": temperature})
    found = {}
    for peer in PEERS:
        python = environments / peer / "bin" / "python"
        if not python.exists():
            continue
        done = subprocess.run(
            [python, PROGRAMS / f"{peer}_peer.py"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{peer}: {done.stderr[-2000:]}")
        found[peer] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _steps(directory: Path) -> Iterator[tuple[dict[str, Any], list[TrajectoryRecord]]]:
    files = {step_of_file(path): path for path in training_files(directory)}
    for row in read_metrics(directory):
        if "time/step" in row and row["step"] in files:
            yield row, list(read_trajectories(files[row["step"]]))


def rows(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the numbers of each step under the names of rldoctor's first aliases."""
    for row, records in _steps(directory):
        groups: dict[str, list[float]] = {}
        for record in records:
            groups.setdefault(record.trajectory.group_id, []).append(record.grade.total)
        rewards = [reward for group in groups.values() for reward in group]
        lengths = [int(record.trajectory.loss_mask_T.sum()) for record in records]
        advantages = [record.advantage for record in records if record.advantage is not None]
        numbers = {
            "reward": fmean(rewards),
            "reward_std": pstdev(rewards),
            "reward_max": max(rewards),
            "reward_min": min(rewards),
            "frac_reward_zero_std": fmean(len(set(group)) == 1 for group in groups.values()),
            "group_reward_std": fmean(pstdev(group) for group in groups.values()),
            "group_size": max(map(len, groups.values())),
            "advantages_mean": fmean(advantages) if advantages else None,
            "advantages_std": pstdev(advantages) if advantages else None,
            "entropy": row.get("learner/entropy"),
            "kl": row.get("learner/reference_kl"),
            "clip_ratio/region_mean": row.get("learner/clip_fraction"),
            "grad_norm": row.get("learner/gradient_norm"),
            "learning_rate": row.get("learner/learning_rate"),
            "loss": row.get("learner/loss"),
            "completions/mean_length": fmean(lengths),
            "completions/max_length": max(lengths),
            "completions/clipped_ratio": fmean(
                record.trajectory.finish_reason is FinishReason.LENGTH for record in records
            ),
            "step_time": row.get("time/step"),
        }
        yield {"step": row["step"], **{name: value for name, value in numbers.items() if value is not None}}


def tokens(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the recorded sequences: their tokens, the engine's and the learner's log-probabilities, the versions.

    Sequences whose arrays do not fit their tokens are left out.
    """
    digests = {0: _digest("initial")}
    for line in read_receipt(directory):
        if line.get("weights") is not None:
            digests[int(line["step"]) + 1] = _digest(line["weights"])
    for row, records in _steps(directory):
        numbers = read_token_numbers(directory, row["step"])
        for record in records:
            trajectory = record.trajectory
            key = TokenKey(trajectory.group_id, trajectory.sample_index, 0)
            mask = trajectory.loss_mask_T
            learned = numbers[key].arrays["learner_logprobs"] if key in numbers else np.zeros(0)
            if not len(learned) or len(learned) != mask.sum():
                continue
            yield {
                "step": row["step"],
                "weights": digests.get(row["step"], _digest(str(row["step"]))),
                "id": f"{trajectory.group_id}/{trajectory.sample_index}",
                "prompt": list(trajectory.prompt.token_ids),
                "ids": trajectory.token_ids_T[mask].tolist(),
                "engine": trajectory.rollout_logprobs_T[mask].tolist(),
                "learner": learned.tolist(),
                "reward": record.grade.total,
            }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
