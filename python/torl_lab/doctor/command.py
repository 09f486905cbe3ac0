"""Name what goes wrong in a run, from its records.

torl doctor RUN...          check runs, finished or running
torl doctor RUN --prove     and make steps again with one setting changed, which proves or refutes a cause
torl doctor --list          list the checks, their thresholds and their sources

A finding names the threshold and its source, up to three trajectories (file:line in the run directory), and the
settings to change. A check without its input is skipped, with the reason.

Exit status: 0 without a finding, 1 with one, 2 if a run cannot be read or a check failed, 3 without a finding but with
something that was left out because the run's files name it and --trust was not given.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.paths import labelled_paths
from torl.base.trust import add_trust_option, reading_runs
from torl.commands.command import reports_errors
from torl.learner.checkpoint.directory import checkpoint_steps
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.records.run_directory import read_config
from torl_lab.doctor.history import StepHistory, read_history
from torl_lab.doctor.proof import StepMaker, prove
from torl_lab.doctor.registry import Results, installed_checks, one_line, run_checks
from torl_lab.doctor.run_check import RunFinding


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        "torl doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("runs", metavar="RUN", nargs="*", help="directory of a run; LABEL=RUN names it")
    parser.add_argument("--list", action="store_true", help="list the checks and exit")
    parser.add_argument("--prove", action="store_true", help="make steps again to prove the causes of findings")
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if not options.runs and not options.list:
        parser.error("a RUN is required")
    with reading_runs(trust=options.trust) as opened:
        return opened.conclude(_check_all(options))


def _check_all(options: argparse.Namespace) -> int:
    status = 0
    if options.list:
        for check in installed_checks():
            print(f"{check.id}: {check.sentence}\n  {check.metric}: {check.thresholds}")
        return 0
    for label, directory in labelled_paths(options.runs).items():
        history = read_run(directory)
        results = run_checks(history, installed_checks(history.config.health.ignore))
        print("\n".join([f"{label}:", *(f"  {line}" for line in describe(results))]), flush=True)
        status = max(status, 2 if results.failed else int(bool(results.findings)))
        if options.prove:
            asyncio.run(_prove_all(directory, history, results.findings, trust=options.trust))
    return status


def read_run(directory: Path) -> StepHistory:
    """Read the history of a run of training, finished or running.

    Raises:
        ConfigError: The configuration cannot be read, or the run is not a training run.
        RecordError: The records are missing or damaged.
    """
    config = read_config(directory)
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"{directory} is a fine-tuning run: torl doctor checks runs of torl train")
    return read_history(directory, config)


async def _prove_all(directory: Path, history: StepHistory, findings: Iterable[RunFinding], *, trust: bool) -> None:
    """Print the proof of each finding that has one."""
    with Console(sys.stderr) as console:
        make_step = StepMaker(directory, history.config, console, trust)
        for finding in findings:
            proof = await prove(history, finding, make_step, checkpoint_steps(directory))
            print(f"  {finding.check.id}: {proof or 'has no proof'}", flush=True)


def describe(results: Results) -> list[str]:
    """Return results as lines: findings, then failed and skipped checks with their reasons, then a count."""
    lines = [line for finding in results.findings for line in finding.lines()]
    lines += [f"FAILED {name}: {one_line(error)}" for name, error in results.failed.items()]
    lines += [f"SKIPPED {name}: {reason}" for name, reason in results.skipped.items()]
    counts = (len(results.findings), len(results.passed), len(results.skipped))
    return [*lines, "findings: {}, passed: {}, skipped: {}".format(*counts)]
