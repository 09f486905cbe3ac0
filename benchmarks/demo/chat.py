"""A chat-formatted tiny model learns to call Python by <tool_call>: two runs, and two controls that must not learn.

    python -m benchmarks.demo.chat DIRECTORY [--steps 30]

Builds the model and its problems (`demo_maker/chat.py`), then trains it four times: with the tool; without it
(`rollout.max_tool_calls` 0); with the tool and rewards that are shuffled between the trajectories of a step; and by an
agent program (`agent.py`), which calls the tool itself. Prints each run's accuracy on problems that it was not
trained on and the share of its responses with a call, before and after.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import settings_words
from demo_maker.chat import conversation, problems
from demo_maker.chat_model import Conversation, build

RUNS: Mapping[str, Mapping[str, str]] = {
    "with the tool": {},
    "without it": {"rollout.max_tool_calls": "0"},
    "shuffled rewards": {"ablation.shuffle": "rewards"},
    "by an agent program": {"rollout.agent.function": "benchmarks.demo.agent:play"},
}
SETTINGS = {
    "data.template": "chat",
    "data.max_prompt_tokens": "64",
    "rollout.format": "hermes",
    "rollout.max_tool_calls": "2",
    "rollout.max_response_tokens": "160",
    "evaluation.every_steps": "0",
    "evaluation.samples_per_problem": "4",
    "evaluation.max_problems": "64",
    "evaluation.greedy": "false",
    "learner.learning_rate": "3e-4",
}


def prepare(directory: Path, made: Conversation = conversation) -> dict[str, str]:
    """The model of such conversations and the problems; the options that name them."""
    model = directory / "base_model"
    if not (model / "model.safetensors").exists():
        build(model, made)
    rows = problems(600, seed=1)
    for name, part in (("train", rows[:500]), ("heldout", rows[500:])):
        lines = "".join(f"{json.dumps(row)}\n" for row in part)
        (directory / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return {
        "model.path": str(model),
        "data.train": str(directory / "train.jsonl"),
        "data.evaluation": f"{{ heldout = {json.dumps(str(directory / 'heldout.jsonl'))} }}",
    }


def train(directory: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """The output of the command at its end."""
    command = [sys.executable, "-m", "torl.train", "demo", *settings_words({"run.directory": directory, **options})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    summary: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return summary


def main() -> None:
    """Its runs and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", default="30")
    parser.add_argument("--only", choices=RUNS, help="one of the runs")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    options = {**prepare(arguments.directory), **SETTINGS, "run.steps": arguments.steps}
    for name, changes in RUNS.items():
        if arguments.only not in (None, name):
            continue
        summary = train(arguments.directory / name.replace(" ", "_"), {**options, **changes})
        outputs = [
            f"{summary[f'{key}_before']:.2f} -> {summary[f'{key}_after']:.2f}" for key in ("accuracy", "code_ratio")
        ]
        print(f"{name:<18} accuracy {outputs[0]}   responses with a call {outputs[1]}", flush=True)


if __name__ == "__main__":
    main()
