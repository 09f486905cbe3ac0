"""False alarms of the doctor: short healthy runs of the demo, each with another seed, and the diseases found in them.

python benchmarks/doctor_alarms.py runs/alarms                 a hundred seeds
python benchmarks/doctor_alarms.py runs/alarms --seeds 20:40   some of them
python benchmarks/doctor_alarms.py runs/alarms --count         the count of finished runs alone

The checks run after each step, as in any run (`health.mode = "warn"`). A finished seed is not run again.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from torl.records import metric_names as names
from torl.records.files import SUMMARY_FILE
from torl.records.reading import read_metrics

SETTINGS = {
    "run.steps": 15,  # the checks that compare with the first steps need ten
    "rollout.prompts_per_step": 8,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": 16,
    "evaluation.samples_per_problem": 0,
    "checkpoint.every_steps": 0,
}


def main() -> None:
    """Run the seeds that are missing, and print the counts after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="directory of the runs")
    parser.add_argument("--seeds", default="0:100", help="first seed and end")
    parser.add_argument("--count", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    first, _, end = arguments.seeds.partition(":")
    for seed in range(int(first), int(end)):
        directory = arguments.directory / f"seed_{seed:03d}"
        if not arguments.count and not (directory / SUMMARY_FILE).exists():
            run(directory, seed)
            print(json.dumps(count(arguments.directory)), flush=True)
    print(json.dumps(count(arguments.directory), indent=1))


def run(directory: Path, seed: int) -> None:
    """Make a run from its first step. Raises CalledProcessError if it fails."""
    shutil.rmtree(directory, ignore_errors=True)
    settings = SETTINGS | {"run.directory": directory, "run.seed": seed}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".log").open("wb") as log:
        command = [sys.executable, "-m", "torl.train", "demo", *words]
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    for folder in ("checkpoints", "model"):
        shutil.rmtree(directory / folder)  # 40 MB each


def count(directory: Path) -> dict[str, object]:
    """Return the numbers of finished runs, of checked steps, and of runs with an alarm by disease."""
    alarms: Counter[str] = Counter()
    sick = steps = 0
    summaries = sorted(directory.glob(f"seed_*/{SUMMARY_FILE}"))
    for summary in summaries:
        rows = [row for row in read_metrics(summary.parent) if names.DIAGNOSES in row]
        found = {name for row in rows for name in row if names.is_diagnosis(name)} - {names.DIAGNOSES}
        alarms.update(name.partition("/")[2] for name in found)
        steps += len(rows)
        sick += bool(found)
    return {"runs": len(summaries), "steps": steps, "runs with an alarm": sick, "alarms": dict(alarms)}


if __name__ == "__main__":
    main()
