"""Write the model of a checkpoint as a directory that transformers and vLLM load.

torl export RUN DIRECTORY             the best checkpoint by checkpoint.keep_best, or the latest if that is unset
torl export RUN DIRECTORY --step 40   the checkpoint after step 40

Needs the run's initial model, and CPU memory for twice its weights in float32. Adapters are merged.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.base.errors import CheckpointError, ConfigError
from torl.commands.command import reports_errors
from torl.learner.checkpoint.directory import checkpoint_steps
from torl.run.config import LearningConfig
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics
from torl.run.records.run_directory import read_configs
from torl.training.policy_versions import export_version


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="directory of a run")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="new directory of the model")
    parser.add_argument("--step", type=int, help="number of steps before the checkpoint")
    options = parser.parse_args(arguments)
    config = read_configs(options.run)[-1][1]  # nothing that it names is needed
    step = _choose(options.run, config, options.step)
    if options.directory.exists() and (not options.directory.is_dir() or any(options.directory.iterdir())):
        raise ConfigError(f"{options.directory}: exists already")
    print(f"the checkpoint after step {step}", file=sys.stderr)
    export_version(options.run, config, step, options.directory)
    print(options.directory)
    return 0


def _choose(run: Path, config: LearningConfig, step: int | None) -> int:
    """Return the step of a checkpoint: the given one, or the best by `checkpoint.keep_best`, or the latest."""
    steps = checkpoint_steps(run)
    if not steps:
        raise CheckpointError(f"{run}: has no checkpoint")
    if step is not None:
        if step not in steps:
            raise ConfigError(f"--step = {step}: {run} has checkpoints after steps {', '.join(map(str, steps))}")
        return step
    if (best := config.checkpoint.keep_best) is None:
        return steps[-1]
    measured = zip(*values_of(read_metrics(run), best), strict=True)  # without null, which is a number not finite
    values = {step: names.quality(best, value) for step, value in measured}
    return max(steps, key=lambda each: (values.get(each, float("-inf")), each))
