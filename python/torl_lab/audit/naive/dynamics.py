"""Naive training dynamics, the summary that follows from them, and the values of settings at a step."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from torl.base.types import FinishReason, Grade, ScoredGroup, ScoredTrajectory, Trajectory
from torl.run.config import LearningConfig
from torl.run.config.schedule import value_in
from torl.run.records import metric_names as names
from torl_lab.audit.naive.behaviors import naive_behaviors
from torl_lab.audit.naive.responses import naive_code_ratio, responses_of, share, tool_metrics, total_reward

_NO_VALUE = "none"  # of `run.group_metrics_by`


def naive_dynamics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return all metrics that follow from the trajectories and grades of a step or an evaluation, by name."""
    members = [member for group in groups for member in group.members]
    responses = responses_of(groups)
    found = _group_metrics(groups) | _reward_metrics([member.grade for member in members]) | _variants(members)
    found |= tool_metrics(responses) | naive_behaviors(groups)
    found |= _lengths([trajectory for trajectory, _ in responses])
    found |= _environment([member.trajectory for member in members])
    branches = len(responses) - len(members)
    return found | share(names.BRANCHES, branches, len(members)) if branches else found


def naive_kinds(groups: Sequence[ScoredGroup], field: str) -> dict[str, float]:
    """Return accuracy and code ratio by the value of a metadata field (`run.group_metrics_by`)."""
    found: dict[str, float] = {}
    values = {str(group.prompt.problem.metadata.get(field, _NO_VALUE)) for group in groups}
    for value in values:
        own = [group for group in groups if str(group.prompt.problem.metadata.get(field, _NO_VALUE)) == value]
        members = [member for group in own for member in group.members]
        found[names.kind_name(value, names.ACCURACY)] = fmean(member.grade.correct for member in members)
        found[names.kind_name(value, names.CODE_RATIO)] = naive_code_ratio(member.trajectory for member in members)
    return found


def naive_greedy(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return the accuracy of an evaluation's greedy responses, a mean over its problems, and their code ratio."""
    accuracies = [fmean(member.grade.correct for member in group.members) for group in groups]
    responses = (member.trajectory for group in groups for member in group.members)
    return {names.GREEDY_ACCURACY: fmean(accuracies), names.GREEDY_CODE_RATIO: naive_code_ratio(responses)}


def naive_staleness(trajectories: Iterable[Trajectory], step: int) -> dict[str, float]:
    """Return the distances of the versions that sampled a step's tokens from the version that learns from them."""
    ages: list[int] = []
    mixed: list[bool] = []
    for trajectory in trajectories:
        tokens = zip(trajectory.policy_versions_T.tolist(), trajectory.loss_mask_T.tolist(), strict=True)
        own = [step - version for version, is_sampled in tokens if is_sampled]
        ages += own
        mixed.append(len(set(own)) > 1)
    return {
        names.STALENESS_MEAN: fmean(ages) if ages else 0.0,
        names.STALENESS_MAX: max([0, *ages]),
        names.SPANNING: fmean(mixed),
    }


def _group_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    solved = [any(member.grade.correct for member in group.members) for group in groups]
    rewards = [[total_reward(member.grade) for member in group.members] for group in groups if len(group.members) > 1]
    equal = sum(all(reward == first for reward in others) for first, *others in rewards)
    return {names.SOLVED: fmean(solved)} | share(names.UNIFORM_GROUPS, equal, len(rewards))


def _reward_metrics(grades: Sequence[Grade]) -> dict[str, float]:
    found: dict[str, float] = {
        names.REWARD_MEAN: fmean(map(total_reward, grades)),
        names.ACCURACY: fmean(grade.correct for grade in grades),
        names.VALID_FORMAT: fmean(grade.valid_format for grade in grades),
        names.ANSWERED: fmean(grade.answer is not None for grade in grades),
        names.GRADER_TIMEOUTS: len([grade for grade in grades if grade.failure == "timeout"]),
        names.GRADER_ERRORS: len([grade for grade in grades if grade.failure == "error"]),
    }
    for part in {part for grade in grades for part in grade.parts}:
        found[names.reward_part(part)] = fmean(grade.parts[part] for grade in grades if part in grade.parts)
    if any(grade.turn_rewards for grade in grades):
        found[names.REWARD_TURNS] = fmean(sum(grade.turn_rewards) for grade in grades)
    return found


def _variants(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    """Return the mean reward of each variant of the prompts."""
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for member in members:
        if member.trajectory.prompt.variant is not None:
            rewards[member.trajectory.prompt.variant].append(total_reward(member.grade))
    return {names.variant_reward(variant): fmean(values) for variant, values in rewards.items()}


def _lengths(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    lengths = [len(trajectory.token_ids_T) for trajectory in trajectories]
    sampled = [trajectory.loss_mask_T.tolist().count(True) for trajectory in trajectories]
    cached = prefixes = 0
    for trajectory in trajectories:
        for turn in trajectory.turns[1:]:
            cached += turn.cached_tokens
            prefixes += len(trajectory.prompt.token_ids) + turn.start
    return {
        names.RESPONSE_TOKENS: fmean(lengths),
        names.SAMPLED_TOKENS: fmean(sampled),
        names.OBSERVED_TOKENS: fmean(length - own for length, own in zip(lengths, sampled, strict=True)),
        names.MAX_RESPONSE: max(lengths),
        names.TURNS: fmean(len(trajectory.turns) for trajectory in trajectories),
        names.TRUNCATED: fmean(trajectory.finish_reason is FinishReason.LENGTH for trajectory in trajectories),
        names.EPISODE_SECONDS: fmean(trajectory.seconds for trajectory in trajectories),
    } | share(names.CACHED_SHARE, cached, prefixes)


def _environment(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Measure conversations with an environment, which agent programs, whose episodes have an answer, do not have."""
    if not any(
        trajectory.answer is None and (trajectory.user_messages or trajectory.environment_rewards)
        for trajectory in trajectories
    ):
        return {}
    reasons = [trajectory.finish_reason for trajectory in trajectories]
    return {
        names.ENVIRONMENT_MESSAGES: fmean(len(trajectory.user_messages) for trajectory in trajectories),
        names.ENVIRONMENT_ENDED: fmean(reason is FinishReason.ENVIRONMENT for reason in reasons),
        names.TURN_LIMIT: fmean(reason is FinishReason.MAX_TURNS for reason in reasons),
    }


_TIMES = (names.TIME_STEP, names.TIME_EVALUATION, names.TIME_CHECKPOINT)
_MEASURES = {
    "accuracy": names.ACCURACY,
    "greedy_accuracy": names.GREEDY_ACCURACY,
    "code_ratio": names.CODE_RATIO,
    "pass_ratio": names.PASS_RATIO,
}


def naive_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of `summary.json` that follow from the rows of metrics: all but the path of the report."""
    sets = list(dict.fromkeys(found[0] for row in rows for key in row if (found := names.split_evaluation(key))))
    by_set = {name: _before_and_after(rows, name) for name in sets}
    summary: dict[str, Any] = dict(by_set[sets[0]]) if sets else {}
    if losses := {row["step"]: row[names.VALIDATION_LOSS] for row in rows if names.VALIDATION_LOSS in row}:
        summary |= {"validation_loss_before": losses.get(0), "validation_loss_after": losses[max(losses)]}
    seconds = [row[name] for row in rows for name in _TIMES if name in row]
    return {**summary, "train_seconds": round(sum(seconds), 1), "evaluation": by_set}


def _before_and_after(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the measures of an evaluation set before the first step, and of its last evaluation."""
    own = [row for row in rows if any((names.split_evaluation(key) or ("",))[0] == name for key in row)]
    last = max(row["step"] for row in own)
    found: dict[str, Any] = {}
    for measure, metric in _MEASURES.items():
        for when, step in (("before", 0), ("after", last)):
            key = names.evaluation_name(name, metric)
            values = [row[key] for row in own if row["step"] == step and key in row]
            found[f"{measure}_{when}"] = values[-1] if values else None
    return found


def naive_scheduled(config: LearningConfig, step: int) -> dict[str, float]:
    """Return the values that the settings with a schedule have at a step, by their dotted names.

    A schedule is a list of pairs of a step and the value from it on, where the configuration holds a number.
    """
    found = {}
    for name, pairs in _lists_of_pairs(config.model_dump(mode="json"), ""):
        if isinstance(value_in(config, tuple(name.split("."))), int | float):
            found[name] = [value for first, value in pairs if first <= step][-1]
    return found


def _lists_of_pairs(tree: Mapping[str, Any], start: str) -> Iterator[tuple[str, list[Any]]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _lists_of_pairs(value, f"{start}{key}.")
        elif isinstance(value, list) and value and all(isinstance(each, list) and len(each) == 2 for each in value):
            yield f"{start}{key}", value
