"""Make the problems that a run trains on, in three steps.

python -m torl.data prepare FILE... --against FILE... --output DIRECTORY
python -m torl.data difficulty MODEL --problems FILE --output FILE [--samples 8] [--config CONFIG] [--section.field ...]
python -m torl.data select --problems FILE --output FILE [--run RUN --threshold 0.6] [--window 0.1,0.9] [--count N]

Each continues where a kill left it, and says what it left out and why; the last line it prints is JSON.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torl.apps.curation.difficulty import measure_difficulty
from torl.apps.curation.layouts import Layout, layouts
from torl.apps.curation.preparing import PrepareOptions, prepare
from torl.apps.curation.selecting import SelectOptions, accuracies_of_run, select
from torl.config import SampleConfig
from torl.config.command_line import find_config, load_config, parse_with_overrides
from torl.data import load_problems
from torl.data.problems import raw_problems
from torl.data.writing import encode_problems
from torl.errors import ConfigError
from torl.records.files import atomic_write
from torl.report.console import Console
from torl.runtime.processes.supervision import run_until_done
from torl.types import Problem

PROGRAM = "python -m torl.data"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    steps = {"prepare": _prepare, "difficulty": _difficulty, "select": _select}
    if not given or given[0] not in steps:
        print(__doc__, file=sys.stdout if given[:1] in (["--help"], ["-h"]) else sys.stderr)
        return 0 if given[:1] in (["--help"], ["-h"]) else 2
    return run_until_done(steps[given[0]](given[1:]))


async def _prepare(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(f"{PROGRAM} prepare", description="Leave out what cannot be verified.")
    parser.add_argument("files", metavar="FILE", nargs="+", help="problems, of any file that torl reads")
    parser.add_argument("--against", metavar="FILE", nargs="*", default=[], help="evaluation sets, to keep none of")
    parser.add_argument("--output", metavar="DIRECTORY", type=Path, required=True)
    parser.add_argument(
        "--column",
        metavar="[NAME:]FIELD=COLUMN",
        action="append",
        default=[],
        help="where problem, answer or id stands, in all files or in the one called NAME: answer=solution.text",
    )
    parser.add_argument(
        "--split", metavar="[NAME:]SPLIT", action="append", default=[], help="of data sets; train when it is not said"
    )
    parser.add_argument("--ngram-words", type=int, default=13, help="words in a row that count as the same problem")
    parser.add_argument("--similarity", type=float, default=0.8, help="of pairs of words: from here on the same")
    parser.add_argument(
        "--stream", action="store_true", help="read data sets of the hub over the network, five times, and store none"
    )
    arguments = parser.parse_args(words)
    files, against = _named(arguments.files), _named(arguments.against)
    laid_out = layouts(arguments.column, arguments.split, files.keys() | against.keys())
    with Console() as console:
        counts = await prepare(
            {name: partial(_raw, file, laid_out[name], stored=not arguments.stream) for name, file in files.items()},
            {name: _evaluation_set(file, laid_out[name]) for name, file in against.items()},
            arguments.output,
            PrepareOptions(arguments.ngram_words, arguments.similarity),
            console,
        )
        console.line(f"{_told(counts)}; {arguments.output} says which, and why")
    print(json.dumps(counts), flush=True)


def _raw(file: str, layout: Layout, *, stored: bool) -> Iterator[Problem]:
    return (problem for _, problem in raw_problems(file, layout.columns, layout.split, download=stored))


def _evaluation_set(file: str, layout: Layout) -> list[Problem]:
    return load_problems(file, layout.columns, layout.split)


def _named(files: Sequence[str]) -> dict[str, str]:
    """Files by their names; those with one name are told apart by their directories."""
    names = [Path(file).stem for file in files]
    names = [
        f"{Path(file).parent.name}-{name}" if names.count(name) > 1 else name
        for file, name in zip(files, names, strict=True)
    ]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"several files are called {twice}: rename all but one, for problems are named by their files"
        )
    return dict(zip(names, files, strict=True))


def _told(counts: Mapping[str, Any]) -> str:
    """How many problems were kept, and why the others were not."""
    dropped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts["dropped"].items())
    return f"kept {counts['kept']:,} of {counts['read']:,} problems" + (f" ({dropped})" if dropped else "")


async def _difficulty(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(f"{PROGRAM} difficulty", description="How often a model solves each problem.")
    parser.add_argument("model_path", metavar="MODEL")
    parser.add_argument("--problems", metavar="FILE", required=True)
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="the problems with pass rates")
    parser.add_argument("--samples", type=int, default=8, help="responses to each problem")
    parser.add_argument("--config", metavar="CONFIG", help="TOML file, run, or preset: template, format, limits")
    arguments, overrides = parse_with_overrides(parser, SampleConfig, f"{PROGRAM} difficulty", words)
    own = {
        "model.path": arguments.model_path,
        "sample.problems": arguments.problems,
        "sample.samples_per_problem": arguments.samples,
        "sample.output": arguments.output.with_name(f"{arguments.output.stem}.trajectories.jsonl"),
    }
    config = load_config(SampleConfig, find_config(arguments.config) if arguments.config else None, overrides | own)
    with Console() as console:
        problems = await measure_difficulty(config, arguments.output, console)
    rates = [problem.metadata["pass_rate"] for problem in problems]
    told = {
        "problems": len(rates),
        "mean": sum(rates) / len(rates),
        "never": rates.count(0.0),
        "always": rates.count(1.0),
    }
    print(json.dumps(told), flush=True)


async def _select(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(f"{PROGRAM} select", description="Choose the problems that are worth training on.")
    parser.add_argument("--problems", metavar="FILE", required=True)
    parser.add_argument("--output", metavar="FILE", type=Path, required=True)
    parser.add_argument("--run", metavar="RUN", type=Path, help="a run on these problems, for LIMR's learning impact")
    parser.add_argument("--threshold", type=float, help="least learning impact (LIMR: 0.6); needs --run")
    parser.add_argument("--window", metavar="LOW,HIGH", help="of pass rates, both ends included")
    parser.add_argument("--count", type=int, help="problems to choose, balanced over difficulty and source")
    parser.add_argument("--bins", type=int, default=10, help="of pass rates, for the balance")
    parser.add_argument("--any-source", action="store_true", help="balance over difficulty alone")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    if arguments.threshold is not None and arguments.run is None:
        raise ConfigError("--threshold is of the learning impact, which --run gives")
    options = SelectOptions(
        arguments.threshold,
        _window(arguments.window),
        arguments.count,
        arguments.bins,
        not arguments.any_source,
        arguments.seed,
    )
    accuracies = None if arguments.run is None else accuracies_of_run(arguments.run)
    chosen, counts = select(load_problems(arguments.problems), options, accuracies)
    with atomic_write(arguments.output) as file:
        file.write(encode_problems(chosen))
    with Console() as console:
        console.line(f"{_told(counts)} in {len(counts['cells'])} cells of pass rate and source")
    print(json.dumps(counts), flush=True)


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise ConfigError(f"--window takes two pass rates, as 0.1,0.9, not {text!r}") from error
    return low, high
