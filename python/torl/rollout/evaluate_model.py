"""Measuring a model that is not being trained."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from torl.config import EvaluateConfig
from torl.records.layout import trajectory_file
from torl.records.rows import group_records
from torl.records.writers import write_trajectories
from torl.report.console import Console
from torl.rollout.evaluation import Evaluation, evaluate
from torl.rollout.model_directory import ModelDirectory, cap_to_context
from torl.rollout.startup import open_rollouts
from torl.runtime.processes.supervision import run_with_watchers

_STEP = 0  # of the records


async def evaluate_model(config: EvaluateConfig, console: Console, name: str | None = None) -> Evaluation:
    """Start the parts, evaluate on `config.evaluate.problems`, write the trajectories if so configured.

    `name` is that of the problem set; the problem file's own where there is none.

    Raises:
        TorlError: what is not as it should be.
    """
    model = ModelDirectory.open(config.model.path, config.rollout.tools, config.rollout.environment)
    config = cap_to_context(config, model.path)
    measured = config.evaluation_settings
    name = name or _name(config)
    if config.evaluate.output is not None:
        trajectory_file(config.evaluate.output, _STEP, name)  # a name that no file can have is told now
    problems = model.problem_set(name, config.evaluate.problems, config.data, measured, console)
    with ExitStack() as stack:
        output = config.evaluate.output
        logs = output or Path(stack.enter_context(TemporaryDirectory(prefix="torl-evaluate-")))
        async with open_rollouts(config, model, console, log_directory=logs) as rollouts:
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
