"""`torl try CONFIG`: what the untrained model offers a run to learn from, before the run."""

import json
import sys
from collections.abc import Sequence

from torl.base.errors import ConfigError
from torl.base.options import import_object
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.run.config import TrainConfig
from torl.run.config.command_line import config_parser, parse_config
from torl.run.display.console import Console

_PROGRAM = "torl try"
_DESCRIPTION = (
    "Start the components of a run, sample a few groups with the untrained model, and say what the run has to learn "
    "from. Nothing is trained, and no file is kept. The last line is JSON. The exit status is 0 if some group has two "
    "different rewards, and 1 if none has."
)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 with something to learn from, 1 without, 2 after an error."""
    parser = config_parser(_PROGRAM, _DESCRIPTION, "[--problems COUNT] [--samples COUNT] ")
    parser.add_argument("--problems", type=int, default=64, metavar="COUNT", help="number of problems (default: 64)")
    parser.add_argument(
        "--samples", type=int, metavar="COUNT", help="responses per problem (default: rollout.samples_per_prompt)"
    )
    words = sys.argv[1:] if arguments is None else arguments
    config, options = parse_config(parser, TrainConfig, _PROGRAM, words)
    samples = config.rollout.samples_per_prompt if options.samples is None else options.samples
    for name, value in (("--problems", options.problems), ("--samples", samples)):
        if value < 1:
            raise ConfigError(f"{name} = {value} must be at least 1")
    found: dict[str, object] = {}

    async def work() -> None:
        with Console() as console:
            found.update(
                await import_object("torl.training.trial:try_run")(
                    config, console, problems=options.problems, samples=samples
                )
            )
        print(json.dumps(found), flush=True)

    status = run_until_done(work())
    if status:
        return 2 if status == 1 else status
    return int(not found["mixed"])
