"""Print the table of a run's steps on a GPU: python -m benchmarks.pretrained.gpu_table METRICS.JSONL"""

import sys
from pathlib import Path
from typing import Any

from torl.run.records import metric_names as names
from torl.run.records.reading import read_rows

HEADER = (
    "| step | accuracy | code ratio | tokens | rollout, s | update, s | tokens/s | weights, s | step, s | gap |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def line(row: dict[str, Any]) -> str:
    """Return the line of a step. Tokens per second are those of the update; the gap is between engine and learner."""
    update = row[names.UPDATE_SECONDS]
    cells = (
        str(row["step"] + 1),
        f"{row[names.ACCURACY]:.2f}",
        f"{row[names.CODE_RATIO]:.2f}",
        f"{row[names.SAMPLED_TOKENS]:.0f}",
        f"{row[names.TIME_ROLLOUT]:.1f}",
        f"{update:.2f}",
        f"{row[names.LEARNED_TOKENS] / update:,.0f}",
        f"{row[names.TIME_SYNC]:.2f}",
        f"{row[names.TIME_STEP]:.1f}",
        f"{row[names.LOGPROB_GAP_MEAN]:.4f}, at most {row[names.LOGPROB_GAP_MAX]:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def lines(metrics: Path) -> list[str]:
    """Return the table of all training steps in a run's metrics."""
    return [*HEADER, *(line(row) for row in read_rows(metrics) if names.TIME_STEP in row)]


if __name__ == "__main__":
    print(*lines(Path(sys.argv[1])), sep="\n")
