"""The commands `torl replay` and `torl diff`."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.trust import add_trust_option, import_from_here
from torl.commands.command import reports_errors
from torl_lab.replay.differences import run_differences
from torl_lab.replay.step import replay_step


@reports_errors
def replay(arguments: Sequence[str] | None = None) -> int:
    """Run `torl replay` and return the exit status: 0 if the step is equal, 1 if it differs, 2 for an error.

    It is 3 if the run's files name something that the step needs, and --trust was not given.
    """
    parser = argparse.ArgumentParser("torl replay", description="Make a step of a run again and compare it.")
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--step", type=int, required=True, help="step, counted from 0")
    parser.add_argument("--change", metavar="SETTING=VALUE", action="append", default=[], help="setting of the step")
    parser.add_argument("--output", metavar="DIRECTORY", type=Path, help="empty directory for the new records")
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.trust:
        import_from_here()
    if wrong := [text for text in options.change if "=" not in text]:
        raise ConfigError(f"--change {wrong[0]}: expected SETTING=VALUE")
    changes = {name: value for name, _, value in (text.partition("=") for text in options.change)}
    result = asyncio.run(replay_step(options.run, options.step, changes, output=options.output, trust=options.trust))
    if result.note:
        print(result.note)
    for difference in result.differences:
        print(difference)
    print(f"step {result.step}: {'equal' if result.equal else 'differs'}")
    return int(not result.equal)


@reports_errors
def diff(arguments: Sequence[str] | None = None) -> int:
    """Run `torl diff` and return the exit status: 0 if the runs are equal, 1 if they differ, 2 for an error."""
    parser = argparse.ArgumentParser("torl diff", description="Name the first difference of two runs.")
    parser.add_argument("first", metavar="A", type=Path, help="run directory")
    parser.add_argument("second", metavar="B", type=Path, help="run directory")
    options = parser.parse_args(arguments)
    found = list(run_differences(options.first, options.second))
    for difference in found:
        print(difference)
    if not found:
        print("no difference")
    return int(bool(found))
