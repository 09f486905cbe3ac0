"""The proofs of the doctor's right findings: a step of the run made again, without the bug."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.doctors.exhibits.catalog import Exhibit
from torl.learner.checkpoint.directory import checkpoint_steps
from torl.run.display.console import Console
from torl_lab.doctor.command import read_run
from torl_lab.doctor.experiments import EXPERIMENTS
from torl_lab.doctor.proof import Proof, StepMaker, prove
from torl_lab.doctor.registry import run_checks


def prove_exhibit(directory: Path, exhibit: Exhibit) -> dict[str, Any] | None:
    """Return the proof of a right finding, with its seconds. None without a right finding that has a proof."""
    history = read_run(directory)
    right = [each for each in run_checks(history).findings if each.check.id in exhibit.truth]
    for finding in sorted(right, key=lambda each: each.check.id not in EXPERIMENTS):
        start = time.perf_counter()
        make_step = StepMaker(directory, history.config, Console())
        proof: Proof | None = asyncio.run(prove(history, finding, make_step, checkpoint_steps(directory)))
        if proof is not None:
            seconds = round(time.perf_counter() - start, 1)
            return {"check": proof.check, "verdict": proof.verdict, "text": proof.text, "seconds": seconds}
    return None


def proof_lines(proofs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of proofs, and how many were successful."""
    yield "| bug | finding | proof | seconds |"
    yield "|---|---|---|---|"
    for name, proof in proofs.items():
        yield f"| {name} | {proof['check']} | {proof['verdict']}: {proof['text']} | {proof['seconds']:.0f} |"
    proved = [proof["seconds"] for proof in proofs.values() if proof["verdict"] == "proved"]
    yield ""
    quick = sum(seconds <= 30 for seconds in proved)
    yield f"{len(proved)} of {len(proofs)} are proved, {quick} within 30 seconds."
