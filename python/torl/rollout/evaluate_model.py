"""The evaluation of a model that is not being trained."""

from pathlib import Path

from torl.config import EvaluateConfig
from torl.records.layout import trajectory_file
from torl.records.rows import group_records
from torl.records.writers import write_trajectories
from torl.report.console import Console
from torl.rollout.evaluation import Evaluation, evaluate
from torl.rollout.model_directory import ModelDirectory
from torl.rollout.startup import OpenRollouts
from torl.runtime.processes.supervision import run_with_watchers

_STEP = 0  # of the records


async def evaluate_with(
    open_running: OpenRollouts, model: ModelDirectory, config: EvaluateConfig, console: Console, name: str | None = None
) -> Evaluation:
    """Evaluate on `config.evaluate.problems`, and write the trajectories if so configured.

    Args:
        open_running: Opens the rollouts, once the problems are read.
        model: The model.
        config: The configuration, capped to the model's context.
        console: Console for progress.
        name: Name of the problem set. None for the name of the problem file.

    Raises:
        TorlError: The problems cannot be read, or a component fails.
    """
    measured = config.evaluation_settings
    name = name or _name(config)
    output = config.evaluate.output
    if output is not None:
        trajectory_file(output, _STEP, name)  # refuses a name that no file can have before anything starts
    problems = model.problem_set(name, config.evaluate.problems, config.data, measured, console)
    async with open_running() as rollouts:
        with console.progress(f"evaluating {name}", measured.episodes(len(problems.prompts))) as wait:
            evaluation = await run_with_watchers(
                evaluate(rollouts, problems, measured, name=name, on_episode=wait.advance),
                *rollouts.watchers(config.rollout.stall_timeout_seconds),
            )
    console.evaluation(None, name, evaluation.metrics)
    if output is not None:
        for label, groups in evaluation.by_file(name).items():
            write_trajectories(output, _STEP, group_records(_STEP, groups), evaluation_set=label)
    return evaluation


def _name(config: EvaluateConfig) -> str:
    """The name of the problem file without its suffix, or of whatever else gives the problems."""
    path = getattr(config.evaluate.problems.options, "path", None)
    return Path(path).stem if path else config.evaluate.problems.name.rpartition(":")[2]
