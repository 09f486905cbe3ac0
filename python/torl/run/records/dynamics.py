"""Training dynamics of scored groups (ToRL, figure 5; ZeroTIR, table 3).

Pure functions: equal trajectories give equal metrics, in a run, in an evaluation and in an audit. Means over responses
weight every response equally; ratios of blocks and runs weight every block and run equally. The branches of an episode
are separate responses; an episode has one reward.
"""

import builtins
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from torl.base.errors import ConfigError
from torl.base.types import FinishReason, ScoredGroup, ScoredTrajectory, ToolCall, Trajectory
from torl.components.text.answers import find_answer
from torl.run.records import metric_names as names
from torl.run.records.behaviors import code_behaviors, difficulty_behaviors, recovers

# Exceptions that a model defines count together, so that the number of metrics stays small.
_PYTHON_EXCEPTIONS = frozenset(
    name for name, member in vars(builtins).items() if isinstance(member, type) and issubclass(member, BaseException)
)
OTHER_EXCEPTION = "other"
MAX_VALUES: Final = 64
MISSING: Final = "none"
"""The value of problems without the metadata field."""


def training_dynamics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Return all metrics that follow from trajectories and grades, by name.

    Args:
        groups: Groups of one step, or of one evaluation.

    Raises:
        ValueError: The groups contain no trajectory.
    """
    members = [member for group in groups for member in group.members]
    if not members:
        raise ValueError("no trajectory to measure")
    played = [each for member in members for each in member.episode_trajectories]
    return {
        **_group_metrics(groups),
        **_reward_metrics(members),
        **_block_metrics(played),
        **_run_metrics(played),
        **code_behaviors(played),
        **difficulty_behaviors(groups),
        **_response_metrics([each.trajectory for each in played]),
        **_environment_metrics([member.trajectory for member in members]),
        **({names.BRANCHES: (len(played) - len(members)) / len(members)} if len(played) > len(members) else {}),
    }


def dynamics_by_value(groups: Sequence[ScoredGroup], field: str) -> dict[str, float]:
    """Return accuracy and code ratio by the value of a metadata field (`metric_names.kind_name`).

    Args:
        groups: Groups of one step, or of one evaluation.
        field: Metadata field of the problems.

    Raises:
        ConfigError: The field has more values than a reader can compare.
    """
    kinds: defaultdict[str, list[ScoredTrajectory]] = defaultdict(list)
    for group in groups:
        kinds[str(group.prompt.problem.metadata.get(field, MISSING))] += group.members
    count = len(kinds)
    if count > MAX_VALUES:
        raise ConfigError(
            f"run.group_metrics_by: {field!r} has {count} values in one step; at most {MAX_VALUES} are supported"
        )
    metrics: dict[str, float] = {}
    for kind, members in sorted(kinds.items()):
        metrics[names.kind_name(kind, names.ACCURACY)] = sum(member.grade.correct for member in members) / len(members)
        metrics[names.kind_name(kind, names.CODE_RATIO)] = code_ratio(members)
    return metrics


def code_ratio(members: Sequence[ScoredTrajectory]) -> float:
    """Return the fraction of responses with at least one code block."""
    return sum(member.trajectory.has_code for member in members) / len(members)


def _group_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    compared = [group for group in groups if len(group.members) > 1]
    uniform = sum(group.has_zero_variance for group in compared)
    solved = sum(any(member.grade.correct for member in group.members) for group in groups)
    return {
        names.SOLVED: solved / len(groups),
        **_ratio(names.UNIFORM_GROUPS, uniform, len(compared)),
    }


def _reward_metrics(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    grades = [member.grade for member in members]
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for grade in grades:
        for name, part in grade.parts.items():
            parts[name].append(part)
    has_turn_rewards = any(grade.turn_rewards for grade in grades)
    return {
        names.REWARD_MEAN: sum(grade.total for grade in grades) / len(grades),
        **_variant_rewards(members),
        names.ACCURACY: sum(grade.correct for grade in grades) / len(grades),
        names.VALID_FORMAT: sum(grade.valid_format for grade in grades) / len(grades),
        names.ANSWERED: sum(grade.answer is not None for grade in grades) / len(grades),
        names.GRADER_TIMEOUTS: sum(grade.failure == "timeout" for grade in grades),
        names.GRADER_ERRORS: sum(grade.failure == "error" for grade in grades),
        **{names.reward_part(name): sum(values) / len(values) for name, values in sorted(parts.items())},
        **_ratio(names.REWARD_TURNS, sum(sum(grade.turn_rewards) for grade in grades), has_turn_rewards * len(grades)),
    }


def _variant_rewards(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for member in members:
        if (variant := member.trajectory.prompt.variant) is not None:
            rewards[variant].append(member.grade.total)
    return {names.variant_reward(variant): sum(values) / len(values) for variant, values in sorted(rewards.items())}


def _block_metrics(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    trajectories = [member.trajectory for member in members]
    blocks = sum(len(turn.blocks) for trajectory in trajectories for turn in trajectory.turns)
    ran = sum(map(_blocks_that_ran, trajectories))
    before_answer = sum(map(_blocks_before_answer, trajectories))
    return {
        names.CODE_RATIO: code_ratio(members),
        names.CODE_BLOCKS_PER_RESPONSE: blocks / len(trajectories),
        **_ratio(names.EXECUTED_RATIO, ran, blocks),
        **_ratio(names.BEFORE_ANSWER_RATIO, before_answer, blocks),
    }


def _blocks_that_ran(trajectory: Trajectory) -> int:
    """Count the blocks that ran; a call runs at most one block of its turn."""
    ran = ((turn, sum(call.ran for call in trajectory.calls_in(turn))) for turn in trajectory.turns)
    return sum(min(count, len(turn.blocks)) for turn, count in ran)


def _blocks_before_answer(trajectory: Trajectory) -> int:
    answer = find_answer(trajectory.sampled_text)
    if answer is None:
        return 0
    before = offset = 0
    for turn in trajectory.turns:
        before += sum(offset + block.start < answer.start for block in turn.blocks)
        offset += len(turn.text) + 1  # turns are joined by newlines
    return before


def _run_metrics(members: Sequence[ScoredTrajectory]) -> dict[str, float]:
    runs: list[tuple[ToolCall, bool]] = []  # with whether the response is correct
    for member in members:
        runs += [(call, member.grade.correct) for call in member.trajectory.tool_calls if call.ran]
    trajectories = [member.trajectory for member in members]
    calls = sum(len(trajectory.tool_calls) for trajectory in trajectories)
    of_correct = [call.outcome.ok for call, correct in runs if correct]
    of_incorrect = [call.outcome.ok for call, correct in runs if not correct]
    waited = sum(call.wait_seconds for trajectory in trajectories for call in trajectory.tool_calls)
    statuses = Counter(call.outcome.status.value for call, _ in runs)
    errors = Counter(_error_name(call.outcome.error) for call, _ in runs if call.outcome.error is not None)
    return {
        names.CALLS_PER_TRAJECTORY: calls / len(trajectories),
        names.RECOVERED_ERRORS: sum(recovers(member.trajectory, member.grade) for member in members) / len(members),
        **_right_tool(trajectories),
        **_ratio(names.CALLS_WITHOUT_CODE, calls - len(runs), calls),
        **_ratio(names.PASS_RATIO, sum(of_correct) + sum(of_incorrect), len(runs)),
        **_ratio(names.PASS_RATIO_CORRECT, sum(of_correct), len(of_correct)),
        **_ratio(names.PASS_RATIO_INCORRECT, sum(of_incorrect), len(of_incorrect)),
        **_ratio(names.WAIT_SHARE, waited, sum(trajectory.seconds for trajectory in trajectories)),
        **{names.status_fraction(status): count / len(runs) for status, count in sorted(statuses.items())},
        **{names.error_fraction(error): count / len(runs) for error, count in sorted(errors.items())},
    }


def _right_tool(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Measure how often the model chose the tool that its problem names."""
    choices: list[bool] = []
    for trajectory in trajectories:
        called = {call.request.tool for call in trajectory.tool_calls if call.request is not None}
        right = trajectory.prompt.problem.metadata.get("tool")
        if called and right is not None:
            choices.append(called == {right})
    return _ratio(names.RIGHT_TOOL, sum(choices), len(choices))


def _response_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    count = len(trajectories)
    tokens = sum(map(len, trajectories))
    sampled = sum(int(trajectory.loss_mask_T.sum()) for trajectory in trajectories)
    truncated = sum(trajectory.finish_reason is FinishReason.LENGTH for trajectory in trajectories)
    later_turns = [(trajectory, turn) for trajectory in trajectories for turn in trajectory.turns[1:]]
    prefixes = sum(len(trajectory.prompt.token_ids) + turn.start for trajectory, turn in later_turns)
    return {
        names.RESPONSE_TOKENS: tokens / count,
        names.SAMPLED_TOKENS: sampled / count,
        names.OBSERVED_TOKENS: (tokens - sampled) / count,
        names.MAX_RESPONSE: max(map(len, trajectories)),
        names.TURNS: sum(len(trajectory.turns) for trajectory in trajectories) / count,
        names.TRUNCATED: truncated / count,
        names.EPISODE_SECONDS: sum(trajectory.seconds for trajectory in trajectories) / count,
        **_ratio(names.CACHED_SHARE, sum(turn.cached_tokens for _, turn in later_turns), prefixes),
    }


def _environment_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Measure conversations with an environment; empty without one."""
    conversations = (each.user_messages or each.environment_rewards for each in trajectories if each.answer is None)
    if not any(conversations):  # the messages of an agent program do not count
        return {}
    reasons = Counter(trajectory.finish_reason for trajectory in trajectories)
    count = len(trajectories)
    return {
        names.ENVIRONMENT_MESSAGES: sum(len(trajectory.user_messages) for trajectory in trajectories) / count,
        names.ENVIRONMENT_ENDED: reasons[FinishReason.ENVIRONMENT] / count,
        names.TURN_LIMIT: reasons[FinishReason.MAX_TURNS] / count,
    }


def staleness(trajectories: Sequence[Trajectory], step: int) -> dict[str, float]:
    """Return the staleness of a step's tokens for the policy of version `step`, which learns from them."""
    versions = [trajectory.policy_versions_T[trajectory.loss_mask_T] for trajectory in trajectories]
    ages = step - np.concatenate(versions)
    return {
        names.STALENESS_MEAN: float(ages.mean()) if len(ages) else 0.0,
        names.STALENESS_MAX: float(ages.max(initial=0)),
        names.SPANNING: sum(len(np.unique(each)) > 1 for each in versions) / len(versions),
    }


def _error_name(error: str) -> str:
    return error if error in _PYTHON_EXCEPTIONS else OTHER_EXCEPTION


def _ratio(name: str, numerator: float, denominator: float) -> dict[str, float]:
    return {name: numerator / denominator} if denominator else {}
