"""The bug museum: real bugs of public trainers as switches of a short demo run, and the doctors that look at it.

    python -m benchmarks.doctors.museum [--only ID ...] [--flawless 10] [--jobs 1] [--output runs/museum]
                                        [--score | --prove] [--peers DIR]

Each exhibit is one `torl train demo` with the bug patched into its processes (`exhibits`). Runs that are there already
are not repeated, and neither are their scores. Prints the table in Markdown and, on the last line, everything as JSON.
`--score` trains nothing.

A doctor has found a bug if it gives a name of the ground truth; for doctors with another vocabulary, any alarm that no
flawless run has counts. Delay is the number of steps that the records have when the first right name is given.

`--prove` lets the doctor prove its right findings instead: it makes a step of each run again, without the bug. Proofs
that are there already are not repeated.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT, settings_words
from benchmarks.doctors.exhibits.catalog import EXHIBITS, load_all
from benchmarks.doctors.exhibits.peers import score_peers
from benchmarks.doctors.exhibits.proofs import proof_lines, prove_exhibit
from benchmarks.doctors.exhibits.scoring import score_torl
from benchmarks.doctors.exhibits.table import lines

STEPS = 12
SETTINGS: dict[str, object] = {
    "run.steps": STEPS,
    "run.token_groups": 4,
    "run.trackers": "{}",
    "rollout.prompts_per_step": 6,
    "rollout.samples_per_prompt": 6,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": 2,
    "checkpoint.every_steps": 6,
    "checkpoint.keep_last": 8,
    "engine.cpu_threads": 1,
    "learner.cpu_threads": 1,
    # torl would stop many of these runs at once. The doctors are to be compared, which need records.
    "learner.max_logprob_gap": 1000.0,
}
FLAWLESS = "flawless"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=None, help="exhibits")
    parser.add_argument("--flawless", type=int, default=10, help="number of flawless seeds")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--output", type=Path, default=Path("runs/museum"))
    parser.add_argument("--score", action="store_true", help="score the runs that are there")
    parser.add_argument("--prove", action="store_true", help="prove the findings of the runs that are there")
    parser.add_argument("--peers", type=Path, default=Path(".venv/doctors"), help="environments of other doctors")
    options = parser.parse_args()
    load_all()
    chosen = list(EXHIBITS) if options.only is None else options.only
    names = [*chosen, *(f"{FLAWLESS}-{seed}" for seed in range(options.flawless))]
    if options.prove:
        proofs = {name: found for name in chosen if (found := prove(options.output, name)) is not None}
        print("\n".join(proof_lines(proofs)))
        print(json.dumps(proofs))
        return
    if not options.score:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda name: train(options.output, name), names))
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        if (options.output / f"{name}.json").exists():
            results[name] = score(options.output, name, options.peers)
    print("\n".join(lines(EXHIBITS, results)))
    print(json.dumps(results))


def train(output: Path, name: str) -> None:
    """Make the run of an exhibit, or a flawless one, unless that is done already."""
    directory, outcome = (output / name).resolve(), output / f"{name}.json"
    if outcome.exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    exhibit = EXHIBITS.get(name)
    overrides = {"run.directory": directory, **SETTINGS, **({} if exhibit is None else exhibit.settings)}
    if exhibit is None:
        overrides["run.seed"] = int(name.removeprefix(f"{FLAWLESS}-"))
    start = time.perf_counter()
    starts = 1 if exhibit is None else exhibit.starts
    for number in range(starts):
        if number < starts - 1:
            more: dict[str, object] = {"run.steps": STEPS // 2}
        else:
            more = {"run.resume": True} if number else {}
        done = launch(name if exhibit is not None else None, {**overrides, **more})
        if done.returncode:
            break
    error = done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else None
    found = {"status": done.returncode, "error": error, "seconds": round(time.perf_counter() - start, 1)}
    (output / f"{name}.log").write_text(done.stderr)
    outcome.write_text(json.dumps(found))
    print(f"{name}: {found}", file=sys.stderr, flush=True)


def launch(exhibit: str | None, overrides: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Run `torl train demo`, with the bug of an exhibit if it has a name."""
    program = ["torl.train"] if exhibit is None else ["benchmarks.doctors.exhibits.start", exhibit]
    paths = [str(Path(__file__).parent / "exhibits" / "site"), str(ROOT), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", *program, "demo", *settings_words(overrides)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def score(output: Path, name: str, peers: Path) -> dict[str, Any]:
    """Let all doctors look at a run, unless that is done already."""
    kept = output / f"{name}.scores.json"
    run = json.loads((output / f"{name}.json").read_text())
    if not kept.exists():
        directory = output / name
        found = score_torl(directory, EXHIBITS.get(name))
        kept.write_text(json.dumps(found | score_peers(directory, peers)))
    loaded: dict[str, Any] = json.loads(kept.read_text())
    return {"run": run, **loaded}


def prove(output: Path, name: str) -> dict[str, Any] | None:
    """Prove the finding of an exhibit, unless that is done already. None without a run or a right finding."""
    kept = output / f"{name}.proof.json"
    if not (output / f"{name}.json").exists():
        return None
    if not kept.exists():
        kept.write_text(json.dumps(prove_exhibit(output / name, EXHIBITS[name])))
    proof: dict[str, Any] | None = json.loads(kept.read_text())
    return proof


if __name__ == "__main__":
    main()
