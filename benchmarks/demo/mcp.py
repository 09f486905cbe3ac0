"""The chat demo with its tool served by the sandbox's MCP server, compared with the same tool in the run.

    python -m benchmarks.demo.mcp DIRECTORY [--steps 12]

Builds the chat demo's model (`demo_maker/chat.py`) with the name that the server has for its tool, then trains it
twice. Prints each run's accuracy on problems that it was not trained on and the share of its responses with a call,
before and after.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.demo.chat import SETTINGS as OF_CHAT
from benchmarks.demo.chat import prepare as prepare_chat
from benchmarks.demo.chat import train
from demo_maker.chat import conversation

TOOL = "run_python"
SERVER = shlex.join([sys.executable, "-m", "torl_sandbox", "mcp", "--workers", "1"])
ENVIRONMENT = f"{{ PYTHONPATH = {json.dumps(os.environ.get('PYTHONPATH', ''))} }}"
RUNS: Mapping[str, Mapping[str, str]] = {
    "by an MCP server": {"rollout.tools": f"{{ python = {{ mcp = {json.dumps(SERVER)}, env = {ENVIRONMENT} }} }}"},
    "in the run": {"rollout.tools": f"{{ {TOOL} = {{ name = 'python' }} }}"},
}
STEPS = "12"
SETTINGS = OF_CHAT


def prepare(directory: Path) -> dict[str, str]:
    """The model and the problems; the options that name them."""
    return prepare_chat(directory, partial(conversation, tool=TOOL))


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
        summary = train(arguments.directory / name.replace(" ", "_"), {**options, **RUNS[name]})
        outputs = [
            f"{summary[f'{key}_before']:.2f} -> {summary[f'{key}_after']:.2f}" for key in ("accuracy", "code_ratio")
        ]
        print(f"{name:<17} accuracy {outputs[0]}   responses with a call {outputs[1]}", flush=True)


if __name__ == "__main__":
    main()
