"""The table of `speed.py`, from its measurements."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

GOALS = {  # minimum ratios of tokens per second, maximum ratios of seconds
    "sampling": 0.97,
    "learning": 1.2,
    "eight_calls": 1.05,
    "sixteen_calls": 1.10,
}
HEADER = ["| | torl | next to it | ratio | goal |", "|---|---|---|---|---|"]
_LABELS = {
    "sampling": ("sampling, C = 0", "vLLM's `generate`"),
    "learning": ("learning", "transformers"),
    "eight_calls": ("a batch with eight calls", "no call"),
    "sixteen_calls": ("a batch with sixteen calls", "no call"),
}


def compare(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Compare tokens per second of the same rounds. Only rates of the same round are comparable.

    Returns:
        Both series, their medians, and the median, minimum and maximum of the rounds' ratios.

    Raises:
        ValueError: The series have no or different numbers of rounds.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} rounds cannot be compared")
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {
        "torl": median(ours),
        "peer": median(theirs),
        "ratio": median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "rounds": {"torl": list(ours), "peer": list(theirs)},
    }


def lines(part: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table's rows of a part: "sampling", "learning", "training" or "calls"."""
    match part:
        case "sampling" | "learning":
            label, peer = _LABELS[part]
            low, high = found["ratio_range"]
            verdict = _verdict(found["ratio"] >= GOALS[part])
            yield _row(
                f"{label}, tokens/s",
                f"{found['torl']:,.0f}",
                f"{peer}: {found['peer']:,.0f}",
                f"{found['ratio']:.2f} [{low:.2f}, {high:.2f}]",
                f"≥ {GOALS[part]:g}{verdict}",
            )
            peaks = [f"{_gigabytes(found[f'{side}_peak_bytes'])} GB" for side in ("torl", "peer")]
            yield _row(f"{label}, peak memory", *peaks)
        case "training":
            stages = ", ".join(f"{stage} {value:.1f}" for stage, value in found["seconds"].items() if stage != "step")
            yield _row("a training step, seconds", f"{found['seconds']['step']:.1f}", stages)
            engine, learner = (_gigabytes(found[f"{side}_bytes"]) for side in ("engine", "learner"))
            yield _row("a run, peak memory", f"engine {engine} GB, learner {learner} GB")
        case "calls":
            for name in ("eight_calls", "sixteen_calls"):
                label, peer = _LABELS[name]
                verdict = _verdict(found[name] <= GOALS[name])
                yield _row(f"{label}, seconds", "", peer, f"{found[name]:.2f}", f"≤ {GOALS[name]:.2f}{verdict}")
        case _:
            raise ValueError(f"{part!r} is not a part")


def _row(*cells: str) -> str:
    return f"| {' | '.join([*cells, *[''] * (5 - len(cells))])} |"


def _verdict(reached: bool) -> str:
    return "" if reached else ", **missed**"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.2f}"
