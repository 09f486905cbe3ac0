"""Evaluation of a policy on problems, with the episode loop of training; files that hold several evaluation sets."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from torl.base.errors import DataError, ToolUnavailableError
from torl.base.paths import RESERVED_SET_PATTERN
from torl.base.runtime.processes.supervision import run_with_watchers, task_group
from torl.base.types import Prompt, ScoredGroup
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_groups
from torl.rollout.model_directory import ModelDirectory
from torl.rollout.scheduler import play_groups
from torl.rollout.startup import OpenRollouts, Rollouts
from torl.run.config import EvaluateConfig, EvaluationConfig, ProblemChoice
from torl.run.display.console import Console
from torl.run.display.notebook import groups_html, metrics_html
from torl.run.records import metric_names as names
from torl.run.records.dynamics import code_ratio, training_dynamics
from torl.run.records.files import trajectory_file
from torl.run.records.rows import group_records
from torl.run.records.writers import write_trajectories

_OF_ALL_PROBLEMS = frozenset({names.ACCURACY, names.GREEDY_ACCURACY, names.SOLVED})
_STEP = 0  # of the records of an untrained model


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """The result of one pass over a problem set."""

    metrics: dict[str, float]
    """The training dynamics of the sampled trajectories, or of the greedy ones if none were sampled, and the greedy
    accuracy. Accuracies count problems whose prompts are too long as not solved."""
    groups: tuple[ScoredGroup, ...]
    """The trajectories that the dynamics describe, in the order of the problems."""
    greedy: tuple[ScoredGroup, ...] = ()
    """The trajectories of the greedy accuracy, if they are not `groups`."""

    def __repr__(self) -> str:
        shown = (names.ACCURACY, names.GREEDY_ACCURACY, names.CODE_RATIO, names.PASS_RATIO)
        cells = [f"{name} {self.metrics[name]:.3f}" for name in shown if name in self.metrics]
        count = len(self.groups)
        return f"<Evaluation of {count} problem{'s' * (count != 1)}: {', '.join(cells)}>"

    def _repr_html_(self) -> str:
        return metrics_html(self.metrics) + groups_html(self.groups)

    def by_file(self, name: str) -> dict[str, tuple[ScoredGroup, ...]]:
        """All trajectories by the name of their file: the name of the problem set, with the suffix `.greedy`."""
        return {name: self.groups} | ({f"{name}.greedy": self.greedy} if self.greedy else {})


async def evaluate_with(
    open_running: OpenRollouts,
    model: ModelDirectory,
    config: EvaluateConfig,
    console: Console,
    name: str | None = None,
    output: Path | None = None,
) -> Evaluation:
    """Evaluate on the only set of `config.data.evaluation`.

    Args:
        open_running: Opens the rollouts, once the problems are read.
        model: The model.
        config: The configuration, capped to the model's context.
        console: Console for progress.
        name: Name of the problem set. None for the name of the problem file, or of another source of problems.
        output: Directory that the trajectories are written to. None writes none.

    Raises:
        TorlError: The problems cannot be read, or a component fails.
    """
    evaluation_config = config.evaluation
    (chosen,) = config.data.evaluation.values()
    path = getattr(chosen.options, "path", None)
    name = name or (Path(path).stem if path else chosen.name.rpartition(":")[2])
    if output is not None:
        trajectory_file(output, _STEP, name)  # rejects an invalid file name before the start
    problems = model.problem_set(name, chosen, config.data, evaluation_config, console)
    async with open_running() as rollouts:
        episodes = evaluation_config.episodes(len(problems.prompts))
        with console.progress(f"evaluating {name}", episodes) as progress:
            evaluation = await run_with_watchers(
                evaluate(rollouts, problems, evaluation_config, name=name, on_episode=progress.advance),
                *rollouts.watchers(config.rollout.stall_timeout_seconds),
            )
    console.evaluation(None, name, evaluation.metrics)
    if output is not None:
        for label, groups in evaluation.by_file(name).items():
            write_trajectories(output, _STEP, group_records(_STEP, groups), evaluation_set=label)
    return evaluation


async def evaluate(
    rollouts: Rollouts,
    problems: EncodedPrompts,
    config: EvaluationConfig,
    *,
    name: str,
    on_episode: Callable[[], object] | None = None,
) -> Evaluation:
    """Play every prompt greedily, or `config.samples_per_problem` times at its temperature, or both, and grade.

    Seeds depend only on `name` and the problems, so that evaluations of one run differ by the policy alone. Failed
    episodes are dropped and counted.

    Raises:
        EngineError, SandboxError, RewardError: The host failed.
    """
    failures: list[ToolUnavailableError] = []

    async def play(label: str, temperature: float, samples: int) -> tuple[ScoredGroup, ...]:
        if not samples:
            return ()
        player = evaluation_player(rollouts.player, config, temperature)
        episodes = play_groups(
            player,
            problems.prompts,
            batch_id=f"{name}-{label}",
            samples_per_prompt=samples,
            on_episode=on_episode,
            on_failure=failures.append,
        )
        async with aclosing(episodes):
            groups = [group async for group in episodes]
        order = _order(problems.prompts)
        groups.sort(key=lambda group: order[group.prompt.problem.id])
        return await score_groups(rollouts.evaluation_reward or rollouts.reward, groups, player.open_calls)

    async with task_group() as tasks:
        playing_greedy = tasks.create_task(play("greedy", 0.0, int(config.greedy)))
        playing = tasks.create_task(play("sampled", config.rollout.get("temperature", 1.0), config.samples_per_problem))
    greedy, groups = playing_greedy.result(), playing.result()
    greedy_metrics: dict[str, float] = {}
    if config.greedy:
        greedy_metrics[names.GREEDY_ACCURACY] = sum(group.accuracy for group in greedy) / len(greedy)
        greedy_metrics[names.GREEDY_CODE_RATIO] = code_ratio([member for group in greedy for member in group.members])
    if not config.samples_per_problem:
        greedy, groups = (), greedy
    counts = {names.TOO_LONG: len(problems.too_long), names.FAILED_EPISODES: len(failures)}
    metrics = training_dynamics(groups) | greedy_metrics | counts
    played = len(problems.prompts) / (len(problems.prompts) + len(problems.too_long))
    of_all = {name: metrics[name] * played for name in _OF_ALL_PROBLEMS & metrics.keys()}
    return Evaluation(metrics | of_all, groups, greedy)


def evaluation_player(player: EpisodePlayer, config: EvaluationConfig, temperature: float) -> EpisodePlayer:
    """A copy of the player with the settings of an evaluation."""
    return replace(player, settings=player.settings.model_copy(update={**config.rollout, "temperature": temperature}))


def _order(prompts: Sequence[Prompt]) -> dict[str, int]:
    return {prompt.problem.id: place for place, prompt in enumerate(prompts)}


SOURCE_COLUMN = "data_source"
"""Column of verl's layout with the name of the set that a row belongs to."""


def split_by_source(sets: Mapping[str, ProblemChoice]) -> dict[str, ProblemChoice]:
    """Return problem sets with one set for each `data_source` of a file that has several.

    Each new set has the name of its source and a filter that selects it. If the name is taken or reserved, the name of
    the set comes first, and a number last if that is taken, too.

    Raises:
        DataError: A file cannot be read. The message begins with the name of the set.
    """
    found: dict[str, ProblemChoice] = {}
    for name, choice in sets.items():
        with set_errors(name):
            sources = _sources(choice)
        if len(sources) < 2:
            found[name] = choice
            continue
        for source in sources:
            short = re.sub(r"[^\w.+-]|\.(?=greedy$)", "-", source)
            long = f"{name}-{short}"
            labels = chain((short, long), (f"{long}-{number}" for number in count(2)))
            label = next(
                each for each in labels if not (each in found or each in sets or RESERVED_SET_PATTERN.fullmatch(each))
            )
            where = {**(getattr(choice.options, "where", None) or {}), SOURCE_COLUMN: source}
            found[label] = replace(choice, options=choice.options.model_copy(update={"where": where}))
    return found


@contextmanager
def set_errors(name: str) -> Iterator[None]:
    """Add the name of an evaluation set to the errors of its problems.

    Raises:
        DataError: The block raised one.
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"evaluation set {name}: {error}") from error


def _sources(choice: ProblemChoice) -> list[str]:
    """Return the sources of a problem file without a filter of sources; empty for other sets."""
    if choice.name != "file" or SOURCE_COLUMN in (getattr(choice.options, "where", None) or {}):
        return []
    sources = (problem.metadata.get(SOURCE_COLUMN) for problem in choice.bind()())
    return [source for source in dict.fromkeys(sources) if isinstance(source, str)]
