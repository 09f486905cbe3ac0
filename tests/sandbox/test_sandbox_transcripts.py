"""The sandbox against CPython: code and outputs of whole transcripts that another system recorded."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes import GUESTS, busy_machine
from torl_sandbox import Execution, OutcomeStatus, SandboxPool

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "data" / "tora_gsm8k_transcripts.jsonl"
BLOCK = re.compile(r"```python\n(.*?)\n```\n```output\n(.*?)\n?```", re.DOTALL)

pytestmark = pytest.mark.skipif(not TRANSCRIPTS.is_file(), reason=f"{TRANSCRIPTS} is not there")


def blocks() -> Iterator[tuple[str, str, str]]:
    """Identifier, code and recorded output of every block."""
    for line in TRANSCRIPTS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for index, (code, output) in enumerate(BLOCK.findall(record["transcript"])):
            yield f"{record['id']}/{index}", code, output


def observed(outcome: Execution) -> str:
    """The recorded output of a run: the text that was printed, or else the last line of the error."""
    if outcome.ok:
        return outcome.stdout.strip()
    return (outcome.stdout + (outcome.exception_line or outcome.status)).strip()


@pytest.mark.parametrize("guest", GUESTS)
def test_recorded_outputs_are_reproduced(guest: dict[str, Any]) -> None:
    recorded = list(blocks())
    assert len(recorded) == 1318  # one transcript ends with its code
    # What a run leaves in memory stays there, so that a comparison now and then finds it too.
    with SandboxPool(cpu_seconds=10, **{**guest, "verify_every": 20}) as pool:
        outcomes = pool.run_batch([code for _, code, _ in recorded])
    different = [
        (name, output, observed(outcome))
        for (name, _, output), outcome in zip(recorded, outcomes, strict=True)
        if observed(outcome) != output.strip()
    ]
    equal = 1 - len(different) / len(recorded)
    report = "\n".join(f"{name}: recorded {output!r}, now {now!r}" for name, output, now in different)
    print(f"{equal:.2%} of {len(recorded)} equal\n{report}")
    assert equal >= 0.99, report


def seen(outcome: Execution) -> tuple[object, ...]:
    """All of an outcome but its times."""
    return (
        outcome.status, outcome.stdout, outcome.stderr, outcome.exception_type, outcome.exception_line, outcome.traceback,
        outcome.value, outcome.peak_memory_bytes, outcome.files,
    )  # fmt: skip


def test_outcomes_are_the_same_on_a_busy_machine() -> None:
    codes = [code for _, code, _ in blocks()]
    options: dict[str, Any] = {"seed": 3, "value": True, "return_files": True}
    with SandboxPool(cpu_seconds=10, wall_seconds=300, result_cache_bytes=0) as pool:
        quiet = pool.run_batch(codes, **options)
        with busy_machine():
            # In another order, so that each runs on another worker, after others.
            busy = pool.run_batch(codes[::-1], **options)[::-1]
    repeatable = [
        (one, other)
        for one, other in zip(quiet, busy, strict=True)
        if OutcomeStatus.TIMEOUT not in (one.status, other.status)
    ]
    assert len(repeatable) > 0.99 * len(codes)
    assert [seen(one) for one, _ in repeatable] == [seen(other) for _, other in repeatable]
