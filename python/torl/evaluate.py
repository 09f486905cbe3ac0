"""Measure a model on problems, through the same episode loop that trains it.

python -m torl.evaluate MODEL PROBLEMS --tool on|off
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torl.config import EvaluateConfig, EvaluationConfig
from torl.errors import ConfigError
from torl.settings import load_config
from torl.supervision import run_until_done, watched
from torl.types import Grade, Prompt, Trajectory

if TYPE_CHECKING:
    from torl.reward.grader import GraderPool
    from torl.rollout.episode import EpisodePlayer


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one pass over a problem set showed.

    `metrics` are the training dynamics of the sampled trajectories, or of the greedy ones where none were sampled,
    and the greedy accuracy by its own name. Trajectories and their grades are the same ones the dynamics are of.
    """

    metrics: dict[str, float]
    trajectories: tuple[Trajectory, ...]
    grades: tuple[Grade, ...]


async def evaluate(
    player: "EpisodePlayer",
    grader: "GraderPool",
    prompts: Sequence[Prompt],
    config: EvaluationConfig,
    *,
    name: str,
    on_episode: Callable[[Trajectory], None] | None = None,
) -> Evaluation:
    """Play every prompt greedily, or `config.samples` times at `config.temperature`, or both; grade and measure.

    The seeds depend on `name` and the problems only, so that two evaluations of one run differ by the policy alone.

    Raises:
        EngineError, SandboxError, RewardError: the host is broken.
    """
    from torl.metrics import names
    from torl.metrics.dynamics import training_dynamics

    async def play(label: str, temperature: float, samples: int) -> tuple[list[Trajectory], list[Grade]]:
        form = player.format if config.max_tool_calls is None else player.format.limited(config.max_tool_calls)
        return await _play_and_grade(
            replace(player, settings=replace(player.settings, temperature=temperature), format=form),
            grader,
            prompts[: config.max_problems],
            label=f"{name}-{label}",
            samples=samples,
            on_episode=on_episode,
        )

    greedy: dict[str, float] = {}
    if config.greedy:
        trajectories, grades = await play("greedy", 0.0, 1)
        greedy[names.GREEDY_ACCURACY] = sum(grade.correct for grade in grades) / len(grades)
    if config.samples:
        trajectories, grades = await play("sampled", config.temperature, config.samples)
    return Evaluation(training_dynamics(trajectories, grades) | greedy, tuple(trajectories), tuple(grades))


async def _play_and_grade(
    player: "EpisodePlayer",
    grader: "GraderPool",
    prompts: Sequence[Prompt],
    *,
    label: str,
    samples: int,
    on_episode: Callable[[Trajectory], None] | None,
) -> tuple[list[Trajectory], list[Grade]]:
    from torl.rollout.scheduler import play_groups

    trajectories: list[Trajectory] = []
    groups = play_groups(
        player,
        prompts,
        step=label,
        samples_per_prompt=samples,
        on_episode=on_episode,
    )
    async with aclosing(groups):
        async for group in groups:
            trajectories += group
    trajectories.sort(key=lambda trajectory: (trajectory.group, trajectory.sample))
    return trajectories, await grader.grade_batch(trajectories)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (see `torl.supervision.run_until_done`; 2: wrong configuration)."""
    parser = argparse.ArgumentParser(
        prog="python -m torl.evaluate",
        description="Measure a model on problems, through the same episode loop that trains it.",
    )
    parser.add_argument("model", metavar="MODEL", help="directory of a Hugging Face causal language model")
    parser.add_argument("problems", metavar="PROBLEMS", help="problem file (.jsonl, .json or .parquet)")
    parser.add_argument("--tool", choices=("on", "off"), default="on", help="whether the model's code runs")
    parser.add_argument("--config", type=Path, help="take all other settings from this run's TOML")
    parser.add_argument("--samples", type=int, help="also sample this often for each problem at temperature 1")
    parser.add_argument("--max-problems", type=int, help="use only the first problems")
    parser.add_argument("--output", type=Path, help="write every trajectory to this directory")
    options = parser.parse_args(arguments)
    try:
        config = EvaluateConfig() if options.config is None else load_config(EvaluateConfig, options.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    changes: dict[str, int] = {}
    if options.samples is not None:
        changes["samples"] = options.samples
    if options.max_problems is not None:
        changes["max_problems"] = options.max_problems
    if options.tool == "off":
        changes["max_tool_calls"] = 0
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update=changes)})
    return run_until_done(_evaluate_model(options.model, options.problems, config, options.output))


async def _evaluate_model(model_path: str, problems: str, config: EvaluateConfig, output: Path | None) -> None:
    """Start a sandbox, graders and an engine, evaluate, and print the metrics as one line of JSON."""
    from torl.data.paths import resolve_path
    from torl.data.problems import load_problems
    from torl.data.prompts import encode_prompts
    from torl.metrics.console import Console
    from torl.metrics.writers import write_trajectories
    from torl.reward.grader import GraderPool
    from torl.rollout.assemble import open_player, open_sandbox, within_context
    from torl.rollout.tokenizer import load_tokenizer

    model = resolve_path(model_path)
    tokenizer = load_tokenizer(model)
    found = load_problems(problems)
    prompts = encode_prompts(found, tokenizer, config.data.template, config.data.max_prompt_tokens).prompts
    rollout = within_context(config.rollout, model, config.data.max_prompt_tokens)
    name = Path(problems).stem
    async with AsyncExitStack() as stack:
        console = stack.enter_context(Console())
        logs = output or Path(stack.enter_context(TemporaryDirectory(prefix="torl-evaluate-")))
        with console.wait("preparing the sandbox", 1.0) as wait:
            sandbox = await stack.enter_async_context(
                open_sandbox(config.sandbox, lambda _, share: wait.update(completed=share))
            )
        reward = config.reward
        with console.wait("starting engine and graders"):
            grader = await stack.enter_async_context(GraderPool(reward.workers, reward.timeout_seconds))
            player = await stack.enter_async_context(
                open_player(
                    model,
                    tokenizer,
                    sandbox,
                    rollout=rollout,
                    engine=config.engine,
                    max_prompt_tokens=config.data.max_prompt_tokens,
                    seed=0,
                    log_directory=logs,
                )
            )
        with console.wait(f"evaluating {name}", config.evaluation.episodes(len(prompts))) as wait:
            evaluation = await watched(
                evaluate(
                    player,
                    grader,
                    prompts,
                    config.evaluation,
                    name=name,
                    on_episode=lambda _: wait.advance(),
                ),
                player.engine.watch(),
            )
        console.evaluation(None, name, evaluation.metrics)
        if output is not None:
            write_trajectories(output, 0, evaluation.trajectories, evaluation.grades, evaluation_set=name)
    print(json.dumps(evaluation.metrics), flush=True)


if __name__ == "__main__":
    sys.exit(main())
