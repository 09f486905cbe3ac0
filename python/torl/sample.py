"""Sample trajectories and learn nothing.

python -m torl.sample CONFIG --sample.problems FILE --sample.output FILE [--section.field value ...]

CONFIG may be that of a training run. A killed command is resumed by the same command; the last line it prints is JSON.
"""

import json
import sys
from collections.abc import Sequence

from torl.config import SampleConfig
from torl.config.command_line import run_command
from torl.report.console import Console
from torl.rollout.sampling import sample_to_file, sampling_metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_command(
        SampleConfig, "python -m torl.sample", "Sample trajectories and learn nothing.", _work, arguments
    )


async def _work(config: SampleConfig) -> None:
    with Console() as console:
        groups = await sample_to_file(config, console)
    print(json.dumps(sampling_metrics(groups)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
