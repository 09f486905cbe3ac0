"""The commands that take a configuration and end with a line of JSON: `train`, `finetune`, `try` and `sample`."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from torl.base.errors import ConfigError
from torl.base.options import import_object
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.run.config import FinetuneConfig, ModelRunConfig, SampleConfig, TrainConfig
from torl.run.config.command_line import config_parser, parse_command_line, parse_config

_CHECK = "torl.training.monitor:require_known_names"
_TRY = "torl try"
_TRY_DESCRIPTION = (
    "Start the components of a run, sample a few groups with the untrained model, and say what the run has to learn "
    "from. Nothing is trained, and no file is kept. The last line is JSON. The exit status is 0 if some group has two "
    "different rewards, and 1 if none has."
)


@reports_errors
def train(arguments: Sequence[str] | None = None) -> int:
    """Run `torl train CONFIG... [--section.setting VALUE ...]` and return the exit status."""
    description = "Train a language model to reason with tools."
    work = "torl.training.run:train"
    return launch(TrainConfig, "torl train", description, work, arguments, _CHECK)


@reports_errors
def finetune(arguments: Sequence[str] | None = None) -> int:
    """Run `torl finetune CONFIG... --finetune.train FILE [--section.setting VALUE ...]` and return the exit status.

    CONFIG may be the configuration of a training run, whose model, prompts and evaluation sets are used.
    """
    description = "Fine-tune a language model on examples."
    work = "torl.training.supervised_run:finetune"
    return launch(FinetuneConfig, "torl finetune", description, work, arguments, _CHECK)


@reports_errors
def try_model(arguments: Sequence[str] | None = None) -> int:
    """Run `torl try CONFIG...` and return the exit status: 0 with something to learn from, 1 without."""
    parser = config_parser(_TRY, _TRY_DESCRIPTION, "[--problems COUNT] [--samples COUNT] ")
    parser.add_argument("--problems", type=int, default=64, metavar="COUNT", help="number of problems (default: 64)")
    parser.add_argument(
        "--samples", type=int, metavar="COUNT", help="responses per problem (default: rollout.samples_per_prompt)"
    )
    words = sys.argv[1:] if arguments is None else arguments
    config, options = parse_config(parser, TrainConfig, _TRY, words)
    samples = config.rollout.samples_per_prompt if options.samples is None else options.samples
    for name, value in (("--problems", options.problems), ("--samples", samples)):
        if value < 1:
            raise ConfigError(f"{name} = {value} must be at least 1")
    found: dict[str, object] = {}

    async def work() -> None:
        with import_object("torl.run.display.console:Console")() as console:  # slow to import
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


@reports_errors
def sample(arguments: Sequence[str] | None = None) -> int:
    """Run `torl sample CONFIG... --sample.problems FILE --sample.output FILE` and return the exit status.

    CONFIG may be the configuration of a training run. A killed command is resumed by the same command.
    """
    description = "Sample trajectories without training."
    return launch(SampleConfig, "torl sample", description, "torl.rollout.sampling:sample_and_measure", arguments)


def launch(
    config_class: type[ModelRunConfig],
    program: str,
    description: str,
    work: str,
    arguments: Sequence[str] | None = None,
    check: str = "",
) -> int:
    """Read the command line, do the work, print its summary, and return the exit status.

    Args:
        config_class: Root class of the configuration.
        program: Name of the command, for messages.
        description: Description of the command, for `--help`.
        work: "module:function", a coroutine function (config, console) that returns the summary. It is imported once
            the configuration is valid, so that `--help` and errors are quick.
        arguments: Words of the command line. None for those of the process.
        check: "module:function", a check of the configuration that the work makes at its start, and `--show`, too.

    Returns:
        The exit status of `run_until_done`; 2 for an invalid configuration.
    """
    words = sys.argv[1:] if arguments is None else arguments
    config = parse_command_line(config_class, program, description, words, partial(_check, check))
    return run_until_done(_work(work, config))


def _check(location: str, config: ModelRunConfig) -> None:
    if location:
        import_object(location)(config)


async def _work(work: str, config: ModelRunConfig) -> None:
    console_class = import_module("torl.run.display.console").Console
    with console_class() as console:
        summary = await import_object(work)(config, console)
    print(json.dumps(summary), flush=True)
