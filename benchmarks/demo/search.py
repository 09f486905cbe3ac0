"""A tiny chat model with two tools, Python and a search, learns which to ask: a run, and two controls that must not.

    python -m benchmarks.demo.search DIRECTORY [--steps 40]

Builds the model, its corpus and its problems (`demo_maker/two_tools.py`), then trains it three times: with both
tools; without any (`rollout.max_tool_calls` 0); with results that are shuffled between episodes. Half of the problems
ask for a code that only the corpus holds. Prints for both kinds of problems, of which none was trained on, the accuracy
and the share of right tools among the responses that ask for one, before and after.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.demo.chat import SETTINGS as OF_CHAT
from benchmarks.demo.chat import train
from demo_maker.chat_model import build
from demo_maker.two_tools import conversation, write_world
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics

RUNS: Mapping[str, Mapping[str, str]] = {
    "with both tools": {},
    "without tools": {"rollout.max_tool_calls": "0"},
    "shuffled results": {"ablation.shuffle": "observations"},
}
SETS = ("remainders", "codes")
SETTINGS = {**OF_CHAT, "rollout.max_tool_calls": "1"}
MODEL_STEPS = 1000
STEPS = "40"


def prepare(directory: Path) -> dict[str, str]:
    """The model, the corpus and the problems; the options that name them."""
    model = directory / "base_model"
    write_world(directory)
    if not (model / "model.safetensors").exists():
        build(model, conversation, steps=MODEL_STEPS)

    def path(name: str) -> str:
        return json.dumps(str(directory / f"{name}.jsonl"))

    return {
        "model.path": str(model),
        "data.train": str(directory / "train.jsonl"),
        "data.evaluation": f"{{ {', '.join(f'{name} = {path(name)}' for name in SETS)} }}",
        "rollout.tools": tools(directory / "corpus.jsonl"),
    }


def tools(corpus: Path) -> str:
    """The two tools of the runs, as the setting `rollout.tools`."""
    return f"{{ python = {{}}, search = {{ corpus = {json.dumps(str(corpus))}, top_k = 1 }} }}"


def measured(directory: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """The accuracy and the share of right tools for each set of problems, before and after."""
    rows: list[Mapping[str, Any]] = [
        row for row in read_metrics(directory) if names.evaluation_name(SETS[0], names.ACCURACY) in row
    ]
    return {
        set_name: {
            each.label: tuple(
                row.get(names.evaluation_name(set_name, each), float("nan")) for row in (rows[0], rows[-1])
            )
            for each in (names.ACCURACY, names.RIGHT_TOOL)
        }
        for set_name in SETS
    }


def main() -> None:
    """Three runs and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", default=STEPS)
    parser.add_argument("--only", choices=[*RUNS], help="one of the runs")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    options = {**prepare(arguments.directory), **SETTINGS, "run.steps": arguments.steps}
    for name in [arguments.only] if arguments.only else RUNS:
        run = arguments.directory / name.replace(" ", "_")
        train(run, {**options, **RUNS[name]})
        for set_name, measures in measured(run).items():
            rendered = "   ".join(f"{measure} {a:.2f} -> {b:.2f}" for measure, (a, b) in measures.items())
            print(f"{name:<18} {set_name:<11} {rendered}", flush=True)


if __name__ == "__main__":
    main()
