"""False alarms of doctors: short flawless runs of the demo, each with another seed, and their alarms.

python -m benchmarks.doctors.alarms runs/alarms                 a hundred seeds
python -m benchmarks.doctors.alarms runs/alarms --seeds 20:40   some of them
python -m benchmarks.doctors.alarms runs/alarms --count         the count of finished runs alone

Each run is checked after each of its steps, from its records: by torl's checks as they are now, and by the public
doctors of the museum whose environments are there (`--peers`). A finished seed is not run again.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks import settings_words
from benchmarks.doctors.exhibits.peers import score_peers
from benchmarks.doctors.exhibits.scoring import doctor, steps_of
from torl.run.records.files import SUMMARY_FILE

SETTINGS = {
    "run.steps": 15,  # the checks that compare with the first steps need ten
    "rollout.prompts_per_step": 8,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": 16,
    "evaluation.samples_per_problem": 0,
    "checkpoint.every_steps": 0,
}


def main() -> None:
    """Run the missing seeds, print the alarms of each, and count them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="directory of the runs")
    parser.add_argument("--seeds", default="0:100", help="first seed and end")
    parser.add_argument("--count", action="store_true", help="run nothing")
    parser.add_argument("--peers", type=Path, default=Path(".venv/doctors"), help="environments of other doctors")
    arguments = parser.parse_args()
    first, _, end = arguments.seeds.partition(":")
    for seed in range(int(first), int(end)):
        directory = arguments.directory / f"seed_{seed:03d}"
        if not arguments.count and not (directory / SUMMARY_FILE).exists():
            run(directory, seed)
            print(f"seed {seed}: {sorted(doctor(directory)) or 'no alarm'}", flush=True)
    print(json.dumps(count(arguments.directory, arguments.peers), indent=1))


def run(directory: Path, seed: int) -> None:
    """Make a run from its first step. Raises CalledProcessError if it fails."""
    shutil.rmtree(directory, ignore_errors=True)
    words = settings_words(SETTINGS | {"run.directory": directory, "run.seed": seed})
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".log").open("wb") as log:
        command = [sys.executable, "-m", "torl.train", "demo", *words]
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    for folder in ("checkpoints", "model"):
        shutil.rmtree(directory / folder)  # 40 MB each


def count(directory: Path, peers: Path) -> dict[str, object]:
    """Return the numbers of finished runs and of checked steps, and of runs with each alarm by doctor."""
    runs = [summary.parent for summary in sorted(directory.glob(f"*/{SUMMARY_FILE}"))]
    alarms: defaultdict[str, list[Mapping[str, int]]] = defaultdict(list)
    for run in runs:
        for name, found in {"torl": doctor(run), **score_peers(run, peers)}.items():
            alarms[name].append(found)
    return {
        "runs": len(runs),
        "steps": sum(len(steps_of(run)) for run in runs),
        "runs with an alarm": {name: sum(map(bool, found)) for name, found in alarms.items()},
        "alarms": {name: Counter(alarm for each in found for alarm in each) for name, found in alarms.items()},
    }


if __name__ == "__main__":
    main()
