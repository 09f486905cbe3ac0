"""What `python -m torl.evaluate` is asked for, and doing it."""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.apps.evaluation.cells import SETTINGS_FILE, models_in
from torl.apps.evaluation.papers import PAPERS
from torl.apps.evaluation.playing import play_model, regrade
from torl.apps.evaluation.results import read_results
from torl.apps.evaluation.suites import SUITES, find_sets
from torl.apps.evaluation.tables import all_tables, markdown
from torl.apps.evaluation.writing import write_all
from torl.config import EvaluateModelConfig
from torl.config.command_line import parse_with_overrides
from torl.config.loading import dump_config, find_config, load_config
from torl.errors import ConfigError
from torl.records.files import atomic_write
from torl.report.console import Console
from torl.runtime.processes.supervision import run_until_done

PROGRAM = "python -m torl.evaluate"
_DESCRIPTION = "Measure models on sets of problems, and put them into tables like those of the papers."


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """A command line: the arguments of the command, and fields of the configuration by dotted name."""

    arguments: argparse.Namespace
    overrides: Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        asked = read_arguments(sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_until_done(evaluate_models(asked))


def read_arguments(argv: Sequence[str]) -> ParsedArguments:
    """Read a command line.

    Raises:
        ConfigError: an argument is unknown, or one that is needed is missing.
    """
    parser = argparse.ArgumentParser(
        usage=f"{PROGRAM} MODEL... --suite SET... [--section.field VALUE ...]",
        description=_DESCRIPTION,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("models", metavar="MODEL", nargs="*", help="model, or directory of a run; LABEL=MODEL names it")
    parser.add_argument(
        "--suite", metavar="SET", nargs="+", help=f"{', '.join(SUITES)}, names of sets, files, or package.module:Name"
    )
    parser.add_argument("--sets", metavar="DIRECTORY", type=Path, default=Path("data"), help="where named sets lie")
    parser.add_argument("--config", metavar="CONFIG", help="TOML file, run, or preset; a run's own when unset")
    parser.add_argument("--tool", choices=("on", "off", "both"), default="on", help="N as configured, 0, or both")
    parser.add_argument("--grid", metavar="N,N,...", help="tool calls that an episode may make, instead of --tool")
    parser.add_argument("--compare", choices=tuple(PAPERS), help="show a paper's rows, and the difference from its own")
    parser.add_argument("--output", metavar="DIRECTORY", type=Path, default=Path("runs/evaluation"))
    parser.add_argument("--regrade", action="store_true", help="grade what --output holds again, and sample nothing")
    arguments, overrides = parse_with_overrides(parser, EvaluateModelConfig, PROGRAM, argv)
    if not arguments.regrade and not (arguments.models and arguments.suite):
        raise ConfigError(f"{PROGRAM}: name a model, and the problems with --suite (or --regrade an --output)")
    return ParsedArguments(arguments, overrides)


async def evaluate_models(asked: ParsedArguments) -> None:
    """Play what is missing, or grade again; then write the tables, and print them.

    Raises:
        TorlError: what is not as it should be; what was played is kept.
    """
    arguments = asked.arguments
    with Console() as console:
        if arguments.regrade:
            await _regrade(asked, console)
        else:
            sets = find_sets(arguments.suite, arguments.sets)
            for label, config in _models(asked).items():
                console.line(f"{label}: {config.model.path}")
                await play_model(config, arguments.output / label, sets, _calls(asked, config), console)
    arms = read_results(arguments.output)
    told = write_all(arguments.output, arms, arguments.compare)
    print("\n".join(markdown(table) for table in all_tables(arms, arguments.compare)))
    print(f"{arguments.output}: table.md, table.tex, page.html, and results.json, which comes here too")
    print(json.dumps(told), flush=True)


def _models(asked: ParsedArguments) -> dict[str, EvaluateModelConfig]:
    """The configuration for each model, by the label that it has in the tables."""
    models: dict[str, EvaluateModelConfig] = {}
    for given in asked.arguments.models:
        label, separator, place = given.partition("=")
        place = place if separator else given
        run = Path(place)
        trained = (run / "config.toml").is_file()
        label = label if separator else run.name or place
        if not re.fullmatch(r"[\w.+-]+", label) or label in models:
            raise ConfigError(f"{given}: {label!r} cannot name a model of its own: write LABEL={place}")
        path = str(run / "model") if trained else place
        name = asked.arguments.config or (place if trained else None)
        config = None if name is None else find_config(name)
        models[label] = load_config(EvaluateModelConfig, config, {**asked.overrides, "model.path": path})
    return models


def _calls(asked: ParsedArguments, config: EvaluateModelConfig) -> list[int]:
    """The numbers of tool calls that a model is played with."""
    if asked.arguments.grid is not None:
        numbers = asked.arguments.grid.split(",")
        if not all(number.strip().isdecimal() for number in numbers):
            raise ConfigError(f"--grid takes numbers of tool calls, as 0,2,4, not {asked.arguments.grid!r}")
        return list(dict.fromkeys(map(int, numbers)))
    own = config.evaluation.max_tool_calls
    configured = config.rollout.max_tool_calls if own is None else own
    return list(dict.fromkeys({"on": [configured], "off": [0], "both": [0, configured]}[asked.arguments.tool]))


async def _regrade(asked: ParsedArguments, console: Console) -> None:
    for directory in models_in(asked.arguments.output):
        settings = directory / SETTINGS_FILE
        config = load_config(EvaluateModelConfig, settings, asked.overrides)
        changed = await regrade(directory, config, console)
        console.line(f"{directory.name}: {changed} verdicts changed")
        with atomic_write(settings) as file:
            file.write(dump_config(config).encode())
