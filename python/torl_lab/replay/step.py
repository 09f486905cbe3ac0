"""Make a step of a run again from its seed and the nearest checkpoint: the command `torl replay`."""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import CheckpointError, ConfigError, RecordError
from torl.base.runtime.cluster import open_cluster
from torl.base.runtime.processes.supervision import first_error, has_defect
from torl.base.trust import add_trust_option, import_from_here, reading, require_nothing_refused
from torl.commands.command import reports_errors
from torl.learner.checkpoint.directory import checkpoint_path, checkpoint_steps, verify_checkpoint
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config
from torl.run.display.console import Console
from torl.run.records.files import CONFIG_FILE, record_errors, trajectory_file
from torl.run.records.receipt import read_receipt
from torl.run.records.run_directory import read_configs
from torl.training.run import run_steps
from torl_lab.replay.differences import Difference, step_differences


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay.

    Attributes:
        step: Step.
        checkpoint: Step of the checkpoint that the replay began with; 0 for the initial model.
        differences: First difference of each kind from the record, in the order in which a step makes them.
        note: Reason for an earlier start than the step, if any.
    """

    step: int
    checkpoint: int
    differences: tuple[Difference, ...]
    note: str = ""

    @property
    def equal(self) -> bool:
        """Whether the step is the recorded one, byte for byte without times."""
        return not self.differences


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `torl replay` and return the exit status: 0 if the step is equal, 1 if it differs, 2 for an error.

    It is 3 if the run's files name something that the step needs, and --trust was not given.
    """
    parser = argparse.ArgumentParser("torl replay", description="Make a step of a run again and compare it.")
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--step", type=int, required=True, help="step, counted from 0")
    parser.add_argument("--change", metavar="SETTING=VALUE", action="append", default=[], help="setting of the step")
    parser.add_argument("--output", metavar="DIRECTORY", type=Path, help="empty directory for the new records")
    add_trust_option(parser)
    options = parser.parse_args(arguments)
    if options.trust:
        import_from_here()
    if wrong := [text for text in options.change if "=" not in text]:
        raise ConfigError(f"--change {wrong[0]}: expected SETTING=VALUE")
    changes = {name: value for name, _, value in (text.partition("=") for text in options.change)}
    result = asyncio.run(replay_step(options.run, options.step, changes, output=options.output, trust=options.trust))
    verdict = f"step {result.step}: {'equal' if result.equal else 'differs'}"
    print(*filter(None, [result.note]), *result.differences, verdict, sep="\n")
    return int(not result.equal)


async def replay_step(
    run_directory: Path,
    step: int,
    changes: Mapping[str, object] | None = None,
    *,
    console: Console | None = None,
    output: Path | None = None,
    trust: bool = False,
) -> Replay:
    """Make a step of a run again and compare it with its record. The run's directory is only read.

    Args:
        run_directory: Directory of the run.
        step: Step, counted from 0.
        changes: Settings by dotted name that the step has instead of the run's. Steps between the checkpoint and the
            step are made without them.
        console: Console for progress.
        output: Empty directory that keeps the records of the replay. Optional.
        trust: Whether to import, start and connect to what the run's files name.

    Raises:
        ConfigError: A change is invalid, or the run is not a training run.
        NotTrustedError: The run's files name something that the step needs, and are not trusted.
        RecordError: The step is not recorded, or `output` cannot be written.
        TorlError: A component failed.
        ExceptionGroup: A component has a defect.
    """
    with reading(trust=trust):
        return await _replay_step(run_directory, step, changes, console or Console(), output)


async def _replay_step(
    run_directory: Path, step: int, changes: Mapping[str, object] | None, console: Console, output: Path | None
) -> Replay:
    if not trajectory_file(run_directory, step).is_file():
        raise RecordError(f"{run_directory}: step {step} is not recorded")
    start, note = await asyncio.to_thread(_nearest_checkpoint, run_directory, step)
    with tempfile.TemporaryDirectory(prefix="torl-replay-") as scratch:
        directory = output or Path(scratch) / "run"
        with record_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise ConfigError(f"{directory} is not empty")
            _link_checkpoint(run_directory, start, directory)
            (directory / "logs").mkdir()
        if changes and start < step:
            await _run(_config(run_directory, step - 1, directory, None), directory, console, step)
        await _run(_config(run_directory, step, directory, changes), directory, console, step + 1)
        differences = await asyncio.to_thread(lambda: tuple(step_differences(run_directory, directory, step)))
    return Replay(step, start, differences, note)


async def _run(config: TrainConfig, directory: Path, console: Console, stop: int) -> None:
    try:
        async with open_cluster(config.cluster) as cluster:
            await run_steps(config, directory, console, cluster, stop)
    except ExceptionGroup as group:
        if has_defect(group):
            raise
        raise first_error(group) from group


def _config(run_directory: Path, step: int, directory: Path, changes: Mapping[str, object] | None) -> TrainConfig:
    """Return the configuration of a step, in another directory and without evaluations and trackers."""
    configs = read_configs(run_directory)
    number, config = next(
        (number, config) for number, (first, config) in reversed(list(enumerate(configs))) if first <= step
    )
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"{run_directory} is a run of fine-tuning: only steps of torl train are replayed")
    path = run_directory / (CONFIG_FILE if number == len(configs) - 1 else f"config.{number + 1}.toml")
    own: dict[str, Any] = {}
    threads = [line["learner_threads"] for line in read_receipt(run_directory) if "learner_threads" in line]
    if threads and config.learner.cpu_threads is None:
        own["learner.cpu_threads"] = threads[-1]  # the sums of the gradient depend on it
    config = load_config(TrainConfig, path, own | dict(changes or {}))
    require_nothing_refused()
    return config.model_copy(
        update={
            "run": config.run.model_copy(update={"directory": directory, "resume": True, "trackers": {}}),
            "data": config.data.model_copy(update={"evaluation": {}}),
            "evaluation": config.evaluation.model_copy(update={"every_steps": 0}),
            "checkpoint": config.checkpoint.model_copy(update={"every_steps": 0, "keep_best": None}),
        }
    )


def _nearest_checkpoint(run_directory: Path, step: int) -> tuple[int, str]:
    """Return the step of the latest intact checkpoint that is not after `step`, else 0, and a note."""
    for number in reversed([number for number in checkpoint_steps(run_directory) if number <= step]):
        try:
            verify_checkpoint(checkpoint_path(run_directory, number))
        except CheckpointError:
            continue
        return number, "" if number == step else f"no intact checkpoint of step {step}: replayed from step {number}"
    return 0, "" if step == 0 else f"no intact checkpoint up to step {step}: replayed from the initial model"


def _link_checkpoint(run_directory: Path, step: int, directory: Path) -> None:
    if step:
        source, target = checkpoint_path(run_directory, step), checkpoint_path(directory, step)
        target.parent.mkdir(parents=True)
        target.symlink_to(source.resolve(), target_is_directory=True)
