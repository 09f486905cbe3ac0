"""Train a language model to reason with tools.

python -m torl.train CONFIG [--section.field value ...]
"""

import json
import sys
from collections.abc import Sequence

from torl.config import TrainConfig
from torl.config.command_line import run_command
from torl.report.console import Console
from torl.training.run import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    description = "Train a language model to reason with tools."
    return run_command(TrainConfig, "python -m torl.train", description, _work, arguments)


async def _work(config: TrainConfig) -> None:
    with Console() as console:
        summary = await train(config, console)
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    sys.exit(main())
