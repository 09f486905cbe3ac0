"""Train the missing runs of a sweep, one after another, each in a separate process."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.runtime.processes.children import dying_with_parent
from torl.run.display.console import Console
from torl.run.records.files import CONFIG_FILE
from torl.run.records.run_directory import changed_keys
from torl_lab.sweep.grid import SweepRun

_IGNORED = frozenset({"run.resume"})


def is_finished(run: SweepRun) -> bool:
    """Whether the run reached its last step.

    Raises:
        ConfigError: The directory contains a run with other settings.
        RecordError: The configuration in the directory cannot be read.
    """
    changed = [change for change in changed_keys(run.directory, run.config) if change.key not in _IGNORED]
    if changed:
        raise ConfigError(f"{run.directory} contains a run with other settings ({changed[0]}): choose another --output")
    return run.has_summary


async def train_missing(runs: Sequence[SweepRun], console: Console) -> dict[Path, int]:
    """Train the runs that are not finished; those that were interrupted are resumed.

    A run that fails does not stop the others. Its messages are on standard error.

    Returns:
        The exit status of each run that failed, by its directory.

    Raises:
        ConfigError: A directory contains a run with other settings.
    """
    missing = [run for run in runs if not is_finished(run)]
    failed: dict[Path, int] = {}
    console.line(f"{len(runs)} runs, of which {len(runs) - len(missing)} are finished")
    for number, run in enumerate(missing, start=1):
        console.line(f"run {number} of {len(missing)}: {run.combination.label}, seed {run.seed}")
        status = await _train(run)
        if status:
            console.warning(f"{run.directory}: failed with exit status {status}")
            failed[run.directory] = status
    return failed


async def _train(run: SweepRun) -> int:
    """Train one run and return its exit status. A cancelled call ends the process, which closes its own.

    The process dies with a sweep that is killed: otherwise the run would keep training in the directory that the next
    sweep resumes.
    """
    resume = ("--run.resume", "true") if (run.directory / CONFIG_FILE).exists() else ()
    process = await asyncio.create_subprocess_exec(
        *dying_with_parent(sys.executable, "-m", "torl.train", *run.words, *resume), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
