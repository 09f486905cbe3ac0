"""Prepare the problems of a run in three steps.

torl data sources [SET...]
torl data prepare SET... --against SET... --output DIRECTORY
torl data difficulty MODEL --problems FILE --output FILE [--samples 8] [--config CONFIG]
torl data select --problems FILE --output FILE [--pass-rate-range 0.1,0.9] [--count N]

`sources` lists the public sets, which all steps and runs take by name. An interrupted step resumes. Each step reports
the dropped problems by reason; the last line of its output is JSON. Options of a step: torl data prepare --help
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.base.runtime.processes.supervision import run_until_done
from torl.base.trust import add_trust_option, require_nothing_refused, trust_own_files
from torl.components.data.problems import count_reasons, load_file, read_problems
from torl.components.data.public_sets import ProblemFile, find_problem_file, pinned_problems
from torl.run.config import SampleConfig
from torl.run.config.command_line import parse_with_overrides
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.files import atomic_write
from torl_lab.curation.difficulty import accuracies_of_run, measure_difficulty
from torl_lab.curation.preparing import PrepareOptions, RawSource, format_examples, prepare
from torl_lab.curation.problem_files import (
    add_layout_arguments,
    encode_problems,
    find_layouts,
    label_files,
    list_sources,
)
from torl_lab.curation.selecting import SelectOptions, select

PROGRAM = "torl data"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    steps = {"prepare": _prepare, "difficulty": _difficulty, "select": _select}
    if argv[:1] == ["sources"]:
        return list_sources(argv[1:])
    if not argv or argv[0] not in steps:
        print(__doc__, file=sys.stdout if argv[:1] in (["--help"], ["-h"]) else sys.stderr)
        return 0 if argv[:1] in (["--help"], ["-h"]) else 2
    if argv[0] != "difficulty":
        trust_own_files((), trust=False)
    return run_until_done(steps[argv[0]](argv[1:]))


async def _prepare(argv: Sequence[str]) -> None:
    defaults = PrepareOptions()
    parser = argparse.ArgumentParser(
        f"{PROGRAM} prepare",
        description="Keep verifiable problems; drop duplicates and the problems of evaluation sets.",
        epilog="FILE and SET: a public set (torl data sources), SET=FILE for a copy of it, a file, or hf:owner/name.",
    )
    parser.add_argument("names", metavar="FILE", nargs="+", help="public sets or problem files")
    parser.add_argument("--against", metavar="SET", nargs="*", default=[], help="evaluation sets to exclude")
    parser.add_argument("--output", metavar="DIRECTORY", type=Path, required=True, help="output directory")
    add_layout_arguments(parser)
    parser.add_argument(
        "--ngram-size",
        type=int,
        default=defaults.ngram_size,
        help="words of an n-gram that two problems share if they count as the same (default: %(default)s)",
    )
    parser.add_argument(
        "--similarity-threshold",
        type=float,
        default=defaults.similarity_threshold,
        help="minimum Jaccard similarity of word pairs at which problems count as duplicates (default: %(default)s)",
    )
    parser.add_argument("--any-script", action="store_true", help="keep questions in all scripts, not only in Latin")
    parser.add_argument("--text-answers", action="store_true", help="accept answers that are not mathematics")
    parser.add_argument(
        "--check-solutions", action="store_true", help="drop problems with tests that their own solutions fail"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first invalid row")
    parser.add_argument("--stream", action="store_true", help="read Hub datasets over the network without storing them")
    arguments = parser.parse_args(argv)
    _require_positive(arguments, "ngram_size")
    if not 0 < arguments.similarity_threshold <= 1:
        raise ConfigError(
            f"--similarity-threshold must be above 0 and at most 1, got {arguments.similarity_threshold:g}"
        )
    names, against = label_files(arguments.names), label_files(arguments.against)
    layouts = find_layouts(arguments, tuple(names), tuple(against))
    files = {label: find_problem_file(pinned_problems(name), layouts[label]) for label, name in names.items()}
    options = PrepareOptions(**{each.name: getattr(arguments, each.name) for each in fields(PrepareOptions)})
    with Console() as console:
        counts = await prepare(
            {
                label: RawSource(
                    partial(read_problems, file, download=not arguments.stream),
                    text_answers=arguments.text_answers or file.layout.text_answers,
                    origin=_origin(file),
                )
                for label, file in files.items()
            },
            {label: load_file(find_problem_file(name, layouts[label])) for label, name in against.items()},
            arguments.output,
            options,
            console,
        )
        for label, file in files.items():
            rows = counts["files"][label]["rows"]
            if file.public is not None and not file.public.has_expected_rows(rows):
                console.warning(f"{label}: {rows:,} rows were read, {file.public.rows:,} were expected")
        console.line(format_examples(counts))
        if counts["solutions"]:
            console.line(f"problems with tests, by their own solutions: {count_reasons(counts['solutions'])}")
        console.line(f"{_summary(counts)}; see {arguments.output}")
    print(json.dumps({name: counts[name] for name in ("read", "kept", "dropped", "sources")}), flush=True)


def _origin(file: ProblemFile) -> dict[str, Any]:
    """Return the origin of a file for counts.json."""
    public = file.public
    if public is None:
        return {"path": file.path}
    license = public.license or "not recorded"
    return {"path": file.path, "title": public.title, "license": license, "expected_rows": public.rows}


def _summary(counts: Mapping[str, Any]) -> str:
    """Format the counts of kept and dropped problems."""
    dropped = f" ({count_reasons(counts['dropped'])})" if counts["dropped"] else ""
    return f"kept {counts['kept']:,} of {counts['read']:,} problems{dropped}"


async def _difficulty(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        f"{PROGRAM} difficulty", description="Measure the pass rate of each problem.", add_help=False
    )
    parser.add_argument("model_path", metavar="MODEL", help="model directory or name on the Hub")
    parser.add_argument("--problems", metavar="FILE", required=True, help="problem file")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="output: problems with pass rates")
    parser.add_argument("--samples", type=int, default=8, help="responses to each problem (default: %(default)s)")
    parser.add_argument("--config", metavar="CONFIG", help="TOML file, run or preset for template, format and limits")
    add_trust_option(parser)
    arguments, overrides = parse_with_overrides(parser, SampleConfig, f"{PROGRAM} difficulty", argv)
    trust_own_files([arguments.config], trust=arguments.trust)
    settings = {
        "model.path": arguments.model_path,
        "sample.problems": arguments.problems,
        "sample.samples_per_problem": arguments.samples,
        "sample.output": arguments.output.with_name(f"{arguments.output.stem}.pass_rates.jsonl"),
    }
    config = load_config(
        SampleConfig, find_config(arguments.config) if arguments.config else None, overrides | settings
    )
    require_nothing_refused()
    with Console() as console:
        measured = await measure_difficulty(config, arguments.output, console)
    rates = list(measured.values())
    summary = {
        "problems": len(rates),
        "mean": sum(rates) / len(rates),
        "never": rates.count(0.0),
        "always": rates.count(1.0),
    }
    print(json.dumps(summary), flush=True)


async def _select(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(f"{PROGRAM} select", description="Select the problems to train on.")
    parser.add_argument("--problems", metavar="FILE", required=True, help="problem file, usually with pass rates")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="output: selected problems")
    add_layout_arguments(parser)
    parser.add_argument("--run", metavar="RUN", type=Path, help="run on these problems, for LIMR's learning impact")
    parser.add_argument("--min-learning-impact", type=float, help="minimum learning impact (LIMR: 0.6); requires --run")
    parser.add_argument("--pass-rate-range", metavar="MIN,MAX", help="range of pass rates to keep, inclusive")
    parser.add_argument("--count", type=int, help="number of problems, balanced over difficulty and source")
    parser.add_argument(
        "--difficulty-bins", type=int, default=10, help="pass-rate bins for balancing (default: %(default)s)"
    )
    parser.add_argument("--ignore-source", dest="by_source", action="store_false", help="balance over difficulty only")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    arguments = parser.parse_args(argv)
    _require_positive(arguments, "count", "difficulty_bins")
    if arguments.min_learning_impact is not None and arguments.run is None:
        raise ConfigError("--min-learning-impact requires --run, which provides the accuracies")
    arguments.pass_rate_range = _parse_range(arguments.pass_rate_range)
    options = SelectOptions(**{each.name: getattr(arguments, each.name) for each in fields(SelectOptions)})
    accuracies = None if arguments.run is None else accuracies_of_run(arguments.run)
    (layout,) = find_layouts(arguments, tuple(label_files([arguments.problems]))).values()
    selected, counts = select(load_file(find_problem_file(arguments.problems, layout)), options, accuracies)
    with atomic_write(arguments.output) as file:
        file.write(encode_problems(selected))
    with Console() as console:
        console.line(f"{_summary(counts)} in {len(counts['strata'])} strata of pass rate and source")
        if accuracies is not None and max(map(len, accuracies.values()), default=0) < 2:
            console.warning("the run has one epoch: the learning impact compares one accuracy, not a learning curve")
    print(json.dumps(counts), flush=True)


def _require_positive(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def _parse_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise ConfigError(f"--pass-rate-range must be two pass rates such as 0.1,0.9, got {text!r}") from error
    if low > high:
        raise ConfigError(f"--pass-rate-range must be MIN,MAX, but {low:g} is above {high:g}")
    return low, high
