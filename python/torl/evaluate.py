"""Measure a model on problems, through the same episode loop that trains it.

python -m torl.evaluate CONFIG --evaluate.problems FILE [--model.path MODEL] [--section.field value ...]

CONFIG may be that of a training run, or its directory. The last line it prints is JSON.
"""

import json
import sys
from collections.abc import Sequence

from torl.config import EvaluateConfig
from torl.config.command_line import run_command
from torl.report.console import Console
from torl.rollout.measuring import evaluate_model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    description = "Measure a model on problems, through the same episode loop that trains it."
    return run_command(EvaluateConfig, "python -m torl.evaluate", description, _work, arguments)


async def _work(config: EvaluateConfig) -> None:
    with Console() as console:
        evaluation = await evaluate_model(config, console)
    print(json.dumps(evaluation.metrics), flush=True)


if __name__ == "__main__":
    sys.exit(main())
