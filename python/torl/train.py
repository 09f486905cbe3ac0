"""Train a language model to reason with tools.

python -m torl.train CONFIG [--section.field value ...]
"""

import json
import sys
from collections.abc import Sequence

from torl.config import TrainConfig
from torl.config.command_line import run_command
from torl.learner.torchrun import become_rank, is_secondary_rank
from torl.report.console import Console
from torl.training.run import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    description = "Train a language model to reason with tools."
    return run_command(TrainConfig, "python -m torl.train", description, _work, arguments)


async def _work(config: TrainConfig) -> None:
    if is_secondary_rank():
        become_rank()
    with Console() as console:
        summary = await train(config, console)
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    sys.exit(main())
