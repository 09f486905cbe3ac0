"""The command line of `torl evaluate`."""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.options import Choice
from torl.base.runtime.processes.supervision import run_until_done
from torl.base.trust import add_trust_option, reading, require_nothing_refused, trust_own_files
from torl.commands.command import reports_errors
from torl.components.rewards import Reward
from torl.rollout.evaluation import split_by_source
from torl.run.config import EvaluateModelConfig, ProblemChoice
from torl.run.config.command_line import parse_with_overrides
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.files import EXPORT_DIRECTORY, atomic_write
from torl_lab.curation.problem_files import add_layout_arguments, find_layouts
from torl_lab.evaluation.cells import SETTINGS_FILE, models_in
from torl_lab.evaluation.output import markdown, write_all
from torl_lab.evaluation.papers import PAPERS
from torl_lab.evaluation.playing import play_model, regrade
from torl_lab.evaluation.results import read_results, shared_problems
from torl_lab.evaluation.sets import SUITES, find_locations, has_tests, make_set
from torl_lab.evaluation.tables import all_tables

PROGRAM = "torl evaluate"
_LABEL = re.compile(r"(?!\.+$)[\w.+=-]+")  # a directory of the output
_DESCRIPTION = "Evaluate models on problem sets and write tables in the layout of the papers."


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    given = read_arguments(sys.argv[1:] if arguments is None else arguments)
    if not given.regrade:  # which reads the directory of an evaluation
        configs = [given.config] if given.config else [_located(argument)[1] for argument in given.models]
        trust_own_files(configs, trust=given.trust)
    elif given.trust:
        trust_own_files((), trust=True)
    return run_until_done(evaluate_models(given))


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. The values of settings by dotted name are in `overrides`.

    Raises:
        ConfigError: An argument is unknown, or a required argument is missing.
    """
    parser = argparse.ArgumentParser(
        usage=f"{PROGRAM} MODEL... --suite SET... [--section.setting VALUE ...]",
        description=_DESCRIPTION,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("models", metavar="MODEL", nargs="*", help="model or run directory; LABEL=MODEL sets its label")
    parser.add_argument(
        "--suite",
        metavar="SET",
        nargs="+",
        help=f"suites ({', '.join(SUITES)}), public sets (torl data sources), SET=FILE, files, hf:owner/name, or "
        "package.module:function",
    )
    parser.add_argument(
        "--sets-directory",
        metavar="DIRECTORY",
        type=Path,
        default=Path("data"),
        help="directory of the files of named sets, before the Hub (default: %(default)s)",
    )
    add_layout_arguments(parser)
    parser.add_argument("--config", metavar="CONFIG", help="TOML file, run or preset (default: the run of MODEL)")
    parser.add_argument(
        "--tools",
        choices=("on", "off", "both"),
        default="on",
        help="evaluate with tool calls as configured, without tool calls, or both (default: %(default)s)",
    )
    parser.add_argument("--max-tool-calls", metavar="N,N,...", help="maximum numbers of tool calls, instead of --tools")
    parser.add_argument("--compare", choices=tuple(PAPERS), help="paper whose rows and differences are shown")
    parser.add_argument("--baseline", metavar="LABEL", help="model that the others are compared with, by problem")
    parser.add_argument(
        "--interval",
        choices=("problems", "model"),
        default="problems",
        help="subject of the intervals of accuracies: new problems of the kind, or the model on exactly these problems "
        "(avg@n of at least two samples only) (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        metavar="DIRECTORY",
        type=Path,
        default=Path("runs/evaluation"),
        help="directory of the trajectories and tables (default: %(default)s)",
    )
    parser.add_argument("--regrade", action="store_true", help="grade the trajectories in --output again, sample none")
    add_trust_option(parser)
    arguments, overrides = parse_with_overrides(parser, EvaluateModelConfig, PROGRAM, argv)
    arguments.overrides = overrides
    if not arguments.regrade and not (arguments.models and arguments.suite):
        raise ConfigError(f"{PROGRAM}: MODEL and --suite are required (or --regrade and --output)")
    return arguments


async def evaluate_models(arguments: argparse.Namespace) -> None:
    """Play missing episodes or grade existing ones again, then write and print the tables.

    Raises:
        TorlError: A configuration, model or problem set is invalid, or a component failed. Trajectories are kept.
    """
    output, baseline = arguments.output, arguments.baseline
    sets: Mapping[str, ProblemChoice] = {}
    with Console() as console:
        if arguments.regrade:
            configs = {
                directory.name: load_config(EvaluateModelConfig, directory / SETTINGS_FILE, arguments.overrides)
                for directory in models_in(output)
            }
        else:
            with reading(trust=True):  # words of the command line are the user's own
                sets = _sets(arguments)
            configs = _models(arguments, judges_programs=any(map(has_tests, sets)))
        require_nothing_refused()
        if baseline not in (None, *configs):
            raise ConfigError(f"--baseline {baseline} must be one of the models: {', '.join(configs)}")
        for label, config in configs.items():
            if arguments.regrade:
                changed = await regrade(output / label, config, console)
                console.line(f"{label}: {changed} verdicts changed")
                with atomic_write(output / label / SETTINGS_FILE) as file:
                    file.write(str(config).encode())
            else:
                console.line(f"{label}: {config.model.path}")
                await play_model(config, output / label, sets, _calls(arguments, config), console)
        with console.progress("computing confidence intervals"):
            variants = read_results(output, tuple(configs), tuple(sets), for_model=arguments.interval == "model")
            tables = all_tables(variants, arguments.compare, shared_problems(output), baseline)
            write_all(output, variants, tables, baseline)
    print("\n".join(map(markdown, tables)))
    print(f"wrote table.md, table.tex, page.html and results.json to {output}", flush=True)


def _sets(arguments: argparse.Namespace) -> dict[str, ProblemChoice]:
    """Return the problem sets by name; a file with several sources is several sets."""
    locations = find_locations(arguments.suite, arguments.sets_directory)
    layouts = find_layouts(arguments, tuple(locations))
    return split_by_source({label: make_set(location, layouts[label]) for label, location in locations.items()})


def _models(arguments: argparse.Namespace, *, judges_programs: bool) -> dict[str, EvaluateModelConfig]:
    """Load the configuration of each model, by its label in the tables.

    For sets of programs, the reward "tests" replaces the default reward, which compares answers.
    """
    models: dict[str, EvaluateModelConfig] = {}
    for argument in arguments.models:
        label, location = _located(argument)
        run = Path(location)
        trained = (run / "config.toml").is_file()
        if not _LABEL.fullmatch(label) or label in models:
            raise ConfigError(f"{argument}: the label {label!r} is invalid or already used: write LABEL={location}")
        path = str(run / EXPORT_DIRECTORY) if trained else location
        name = arguments.config or (location if trained else None)
        config = None if name is None else find_config(name)
        overrides = {**arguments.overrides, "model.path": path}
        models[label] = load_config(EvaluateModelConfig, config, overrides)
        if judges_programs and models[label].evaluation.reward is None and _compares_answers(models[label].reward):
            models[label] = load_config(EvaluateModelConfig, config, {**overrides, "evaluation.reward": "tests"})
    return models


def _compares_answers(reward: Choice[Reward]) -> bool:
    """Whether a reward is "math", alone or as a part."""
    parts = getattr(reward.options, "parts", {})
    return reward.name == "math" or any(part.name == "math" for part in parts.values())


def _located(argument: str) -> tuple[str, str]:
    """Return the label and the location of a model."""
    label, separator, location = argument.partition("=")
    if separator and not Path(argument).exists():  # torl sweep has runs such as max_tool_calls=0_seed=0
        return label, location
    # Links keep their name, which the output of an earlier evaluation has; "." has that of the directory.
    return Path(os.path.abspath(argument)).name.rpartition(":")[2], argument


def _calls(arguments: argparse.Namespace, config: EvaluateModelConfig) -> list[int]:
    """Return the maximum numbers of tool calls that a model is evaluated with."""
    value = arguments.max_tool_calls
    if value is not None:
        numbers = value.split(",")
        if not all(number.strip().isdecimal() for number in numbers):
            raise ConfigError(f"--max-tool-calls must be numbers of tool calls such as 0,2,4, got {value!r}")
        return list(dict.fromkeys(map(int, numbers)))
    configured = config.evaluation.apply_to(config.rollout).max_tool_calls
    return list(dict.fromkeys({"on": [configured], "off": [0], "both": [0, configured]}[arguments.tools]))
