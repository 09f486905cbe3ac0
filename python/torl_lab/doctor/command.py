"""Name the diseases of a run from its records.

torl doctor RUN...          check runs, finished or running
torl doctor RUN --prove     and make steps again with one setting changed, which proves or refutes a cause
torl doctor --list          list the diseases, their thresholds and their sources

A diagnosis names the threshold and its source, up to three trajectories (file:line in the run directory), and the
settings to change. A check without its input is skipped, with the reason.

Exit status: 0 without a diagnosis, 1 with one, 2 if a run cannot be read or a check failed, 3 without a diagnosis but
with something that was left out because the run's files name it and --trust was not given.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from torl.base.errors import ConfigError, TorlError
from torl.base.paths import labelled_paths
from torl.base.trust import add_trust_option, reading_runs
from torl.learner.checkpoint.directory import checkpoint_steps
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.records.run_directory import read_config
from torl_lab.doctor.proof import StepMaker, prove
from torl_lab.doctor.registry import DISEASES, Examination, History, examine, read_history


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", metavar="RUN", nargs="*", help="directory of a run; LABEL=RUN names it")
    parser.add_argument("--list", action="store_true", help="list the diseases and exit")
    parser.add_argument(
        "--prove", action="store_true", help="make steps again to prove the diagnoses that have a proof"
    )
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.list:
        for disease in DISEASES.values():
            limits = "; ".join(f"{limit.text} ({limit.source})" for limit in disease.limits)
            print(f"{disease.id}: {disease.sentence}\n  {disease.metric}: {limits}")
        return 0
    if not options.runs:
        parser.error("a RUN is required")
    with reading_runs(trust=options.trust) as opened:
        return opened.conclude(_examine_all(options))


def _examine_all(options: argparse.Namespace) -> int:
    status = 0
    try:
        for label, directory in labelled_paths(options.runs).items():
            history = read_run(directory)
            examination = examine(history)
            print("\n".join([f"{label}:", *(f"  {line}" for line in describe(examination))]), flush=True)
            status = max(status, 2 if examination.failed else int(bool(examination.diagnoses)))
            if options.prove:
                asyncio.run(_prove_all(directory, history, examination, trust=options.trust))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return status


def examine_run(directory: Path) -> Examination:
    """Check a run for all diseases, from its records. Raises the errors of `read_run`."""
    return examine(read_run(directory))


def read_run(directory: Path) -> History:
    """Read the history of a run of training.

    Args:
        directory: Directory of a run, finished or running.

    Raises:
        ConfigError: The configuration cannot be read, or the run is not a training run.
        RecordError: The records are missing or damaged.
    """
    config = read_config(directory)
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"{directory} is a fine-tuning run: torl doctor checks runs of torl train")
    return read_history(directory, config)


async def _prove_all(directory: Path, history: History, examination: Examination, *, trust: bool) -> None:
    """Print the proof of each diagnosis that has one."""
    with Console(sys.stderr) as console:
        make_step = StepMaker(directory, history.config, console, trust)
        for diagnosis in examination.diagnoses:
            proof = await prove(history, diagnosis, make_step, checkpoint_steps(directory))
            print(f"  {diagnosis.disease.id}: {proof or 'has no proof'}", flush=True)


def describe(examination: Examination) -> list[str]:
    """Return an examination as lines: diagnoses, then failed and skipped checks with their reasons, then a count."""
    lines = [line for diagnosis in examination.diagnoses for line in diagnosis.lines()]
    lines += [f"FAILED {name}: {error!r}" for name, error in examination.failed.items()]
    lines += [f"SKIPPED {name}: {reason}" for name, reason in examination.skipped.items()]
    counts = (len(examination.diagnoses), len(examination.healthy), len(examination.skipped))
    return [*lines, "{} diagnoses, {} checks without a finding, {} skipped".format(*counts)]
