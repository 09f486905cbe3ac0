"""A run in its directory, from its configuration to its summary, with restarts after the loss of a node."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from torl.base.errors import ActorDiedError, EngineDiedError, LearnerDiedError, TorlError, WeightTransferError
from torl.base.runtime.cluster import Cluster, open_cluster
from torl.base.runtime.processes.children import first_line
from torl.base.runtime.processes.supervision import first_error
from torl.run.display.console import Console
from torl.run.display.outcome import describe_outcome, write_summary
from torl.run.records.receipt import end_receipt
from torl.run.records.run_directory import open_run_directory
from torl.training.hub_commits import pin_commits
from torl.training.monitor import Monitors
from torl.training.startup import Config

_NODE_LOSSES = (LearnerDiedError, ActorDiedError, WeightTransferError, EngineDiedError)
"""Errors of a run that loses an essential node: a learner node, or any node during a weight transfer. The loss of an
engine that samples does not stop a run."""


Attempt: TypeAlias = Callable[[Config, Path, Console, Cluster, Monitors], Awaitable[int]]
"""Runs from the first step, or from the latest checkpoint, to the last step, and returns the number of steps."""


async def run_recorded(config: Config, console: Console, attempt: Attempt[Config]) -> dict[str, Any]:
    """Run `config` to its last step and return the summary. Models and datasets of the Hub are pinned to a commit.

    On a cluster, a run that loses learner ranks with their node restarts from its latest checkpoint, at most
    `cluster.max_restarts` times.

    Args:
        config: Configuration of the run.
        console: Console for progress and warnings.
        attempt: Function that runs the steps.

    Raises:
        TorlError: The configuration, the data or a component failed. All records written so far are kept.
    """
    monitors = Monitors.installed(config)
    config = pin_commits(config)
    with open_run_directory(config) as directory:
        steps = await _run_with_restarts(config, directory, console, attempt, monitors)
        summary = write_summary(directory)
        receipt = end_receipt(directory, steps)
        for line in describe_outcome(directory):
            console.line(line)
        console.line(f"report: {summary['report']}")
        if receipt is not None:
            console.line(f"receipt: {receipt}")
        return summary


async def _run_with_restarts(
    config: Config, directory: Path, console: Console, attempt: Attempt[Config], monitors: Monitors
) -> int:
    restarts, is_remote = 0, False
    while True:
        try:
            async with open_cluster(config.cluster) as cluster:
                is_remote = cluster.is_remote
                return await attempt(config, directory, console, cluster, monitors)
        except (TorlError, ExceptionGroup) as group:
            error = first_error(group)
            if not is_remote or not isinstance(error, _NODE_LOSSES) or restarts == config.cluster.max_restarts:
                raise
            restarts += 1
            console.warning(
                f"{first_line(error).rstrip(':')}: the run continues from its last checkpoint "
                f"(restart {restarts} of {config.cluster.max_restarts}, cluster.max_restarts)"
            )
            config = config.model_copy(update={"run": config.run.model_copy(update={"resume": True})})
