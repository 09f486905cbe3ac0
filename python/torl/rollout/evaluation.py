"""Measuring a policy on problems, through the same episode loop that trains it."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from torl.config import EvaluationConfig
from torl.errors import ToolUnavailableError
from torl.records import metric_names as names
from torl.records.dynamics import training_dynamics
from torl.report.notebook import groups_html, metrics_html
from torl.rollout.episode import EpisodePlayer
from torl.rollout.grading import score_groups
from torl.rollout.scheduler import play_groups
from torl.rollout.startup import Rollouts
from torl.text.prompts import EncodedPrompts
from torl.types import Prompt, ScoredGroup

_OF_ALL_PROBLEMS = frozenset({names.ACCURACY, names.GREEDY_ACCURACY, names.SOLVED})


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
        return f"<Evaluation of {len(self.groups)} problems: {', '.join(cells)}>"

    def _repr_html_(self) -> str:
        return metrics_html(self.metrics) + groups_html(self.groups)

    def by_file(self, name: str) -> dict[str, tuple[ScoredGroup, ...]]:
        """All trajectories, by what their file is called: the name of the set, and with `.greedy` behind it."""
        return {name: self.groups} | ({f"{name}.greedy": self.greedy} if self.greedy else {})


async def evaluate(
    rollouts: Rollouts,
    problems: EncodedPrompts,
    config: EvaluationConfig,
    *,
    name: str,
    on_episode: Callable[[], object] | None = None,
) -> Evaluation:
    """Play every prompt greedily, or `config.samples` times at `config.temperature`, or both; grade and measure.

    The seeds depend on `name` and the problems only, so that two evaluations of one run differ by the policy alone. An
    episode that a tool spoilt is left out and counted.

    Raises:
        EngineError, SandboxError, RewardError: the host is broken.
    """
    spoilt: list[ToolUnavailableError] = []

    async def play(label: str, temperature: float, samples: int) -> tuple[ScoredGroup, ...]:
        return await _play_and_grade(
            rollouts,
            problems.prompts,
            config,
            series=f"{name}-{label}",
            temperature=temperature,
            samples=samples,
            on_episode=on_episode,
            on_spoilt=spoilt.append,
        )

    greedy: dict[str, float] = {}
    groups: tuple[ScoredGroup, ...] = ()
    beside: tuple[ScoredGroup, ...] = ()
    if config.greedy:
        groups = await play("greedy", 0.0, 1)
        greedy[names.GREEDY_ACCURACY] = sum(group.accuracy for group in groups) / len(groups)
    if config.samples_per_problem:
        beside, groups = groups, await play("sampled", config.temperature, config.samples_per_problem)
    counts = {names.TOO_LONG: len(problems.too_long), names.FAILED_EPISODES: len(spoilt)}
    metrics = training_dynamics(groups) | greedy | counts
    played = len(problems.prompts) / (len(problems.prompts) + len(problems.too_long))
    of_all = {name: metrics[name] * played for name in _OF_ALL_PROBLEMS & metrics.keys()}
    return Evaluation(metrics | of_all, groups, beside)


async def _play_and_grade(
    rollouts: Rollouts,
    prompts: Sequence[Prompt],
    config: EvaluationConfig,
    *,
    series: str,
    temperature: float,
    samples: int,
    on_episode: Callable[[], object] | None,
    on_spoilt: Callable[[ToolUnavailableError], object],
) -> tuple[ScoredGroup, ...]:
    """The groups of these prompts, in their order."""
    playing = play_groups(
        evaluation_player(rollouts.player, config, temperature),
        prompts,
        batch_id=series,
        samples_per_prompt=samples,
        on_episode=on_episode,
        on_failure=on_spoilt,
    )
    async with aclosing(playing):
        groups = [group async for group in playing]
    order = {prompt.problem.id: place for place, prompt in enumerate(prompts)}
    groups.sort(key=lambda group: order[group.prompt.problem.id])
    return await score_groups(rollouts.reward, groups, rollouts.player.open_calls)


def evaluation_player(player: EpisodePlayer, config: EvaluationConfig, temperature: float) -> EpisodePlayer:
    """The player with the settings of an evaluation; its own stay as they are."""
    calls = player.settings.max_tool_calls if config.max_tool_calls is None else config.max_tool_calls
    top_p = player.settings.top_p if config.top_p is None else config.top_p
    settings = replace(player.settings, temperature=temperature, top_p=top_p, max_tool_calls=calls)
    return replace(player, settings=settings)
