"""`torl train CONFIG... [--section.setting VALUE ...]`: train a language model to reason with tools."""

from collections.abc import Sequence

from torl.commands.launch import launch
from torl.config import TrainConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    description = "Train a language model to reason with tools."
    return launch(TrainConfig, "torl train", description, "torl.training.run:train", arguments)
