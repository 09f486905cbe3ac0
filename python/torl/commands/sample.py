"""`torl sample CONFIG... --sample.problems FILE --sample.output FILE [--section.setting VALUE ...]`.

CONFIG may be the configuration of a training run. A killed command is resumed by the same command; the last line it
prints is JSON.
"""

from collections.abc import Sequence

from torl.commands.launch import launch
from torl.config import SampleConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    description = "Sample trajectories without training."
    return launch(SampleConfig, "torl sample", description, "torl.rollout.sampling:sample_and_measure", arguments)
