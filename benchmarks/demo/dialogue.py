"""A tiny chat model learns in an environment to ask it and to repeat its reply; a control cannot learn it.

    python -m benchmarks.demo.dialogue DIRECTORY [--steps 30]

Builds the model and its problems (`demo_maker/dialogue.py`), then trains it twice: in an environment that names the
color that it rewards, and in one that names any color. Prints each run's accuracy on problems that it was not trained
on and the share of its episodes in which it asks, before and after.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.demo.chat import SETTINGS as OF_CHAT
from benchmarks.demo.chat import train
from demo_maker.chat_model import build
from demo_maker.dialogue import COPIED, conversation, problems
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics

RUNS: Mapping[str, Mapping[str, str]] = {
    "told the color": {},
    "told any color": {"rollout.environment.honest": "false"},
}
SET = "heldout"
SETTINGS = {
    **OF_CHAT,
    "rollout.max_response_tokens": "64",
    "rollout.tools": "{}",
    "rollout.environment.name": "demo_maker.dialogue:Color",
    "rollout.max_turns": "3",
    "reward.name": "environment",
}
STEPS = "30"
MODEL_STEPS = 300


def prepare(directory: Path) -> dict[str, str]:
    """The model and the problems; the options that name them."""
    model = directory / "base_model"
    if not (model / "model.safetensors").exists():
        build(model, conversation, copied=COPIED, steps=MODEL_STEPS)
    for name, rows in (("train", problems(256)), (SET, problems(64, first=256))):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return {
        "model.path": str(model),
        "data.train": str(directory / "train.jsonl"),
        "data.evaluation": f"{{ {SET} = {json.dumps(str(directory / f'{SET}.jsonl'))} }}",
    }


def measured(directory: Path) -> dict[str, tuple[float, float]]:
    """The accuracy and the share of episodes in which the model asks, before and after."""
    metric_names = {"accuracy": names.ACCURACY, "asks": names.ENVIRONMENT_MESSAGES}
    rows: list[Mapping[str, Any]] = [
        row for row in read_metrics(directory) if names.evaluation_name(SET, names.ACCURACY) in row
    ]
    return {
        key: (rows[0][names.evaluation_name(SET, name)], rows[-1][names.evaluation_name(SET, name)])
        for key, name in metric_names.items()
    }


def main() -> None:
    """Two runs and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", default=STEPS)
    parser.add_argument("--only", choices=RUNS, help="one of the runs")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    options = {**prepare(arguments.directory), **SETTINGS, "run.steps": arguments.steps}
    for name in [arguments.only] if arguments.only else RUNS:
        run = arguments.directory / name.replace(" ", "_")
        train(run, {**options, **RUNS[name]})
        rendered = "   ".join(f"{measure} {a:.2f} -> {b:.2f}" for measure, (a, b) in measured(run).items())
        print(f"{name:<15} {rendered}", flush=True)


if __name__ == "__main__":
    main()
