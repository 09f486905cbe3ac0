"""Print the table of a run's steps on a GPU: python -m benchmarks.pretrained.gpu_table METRICS.JSONL"""

import json
import sys
from pathlib import Path
from typing import Any

HEADER = (
    "| step | accuracy | code ratio | tokens | rollout, s | update, s | tokens/s | weights, s | step, s | gap |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def line(row: dict[str, Any]) -> str:
    """Return the line of a step. Tokens per second are those of the update; the gap is between engine and learner."""
    update = row["learner/update_seconds"]
    cells = (
        str(row["step"] + 1),
        f"{row['reward/accuracy']:.2f}",
        f"{row['tool/code_ratio']:.2f}",
        f"{row['response/sampled_tokens']:.0f}",
        f"{row['time/rollout']:.1f}",
        f"{update:.2f}",
        f"{row['learner/tokens'] / update:,.0f}",
        f"{row['time/weight_sync']:.2f}",
        f"{row['time/step']:.1f}",
        f"{row['learner/logprob_gap_mean']:.4f}, at most {row['learner/logprob_gap_max']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def lines(metrics: Path) -> list[str]:
    """Return the table of all training steps in a run's metrics."""
    rows = [json.loads(each) for each in metrics.read_text(encoding="utf-8").splitlines()]
    return [*HEADER, *(line(row) for row in rows if "time/step" in row)]


if __name__ == "__main__":
    print(*lines(Path(sys.argv[1])), sep="\n")
