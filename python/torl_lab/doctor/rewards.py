"""Checks of rewards: hacking, noise, dominating or dead parts, unrelated advantages, answers that are not compared."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from statistics import fmean

import numpy as np

from torl.run.display.series import Row, evaluation_sets, values_of
from torl.run.records import metric_names as names
from torl.run.records.signal import correlation_within, deviations_within
from torl.run.records.thresholds import UNRELATED, Limit
from torl_lab.doctor.facts import Member
from torl_lab.doctor.groups import MIN_GROUPS, compared_groups, is_uniform
from torl_lab.doctor.history import RECENT, MissingInputError, StepHistory, members_in
from torl_lab.doctor.run_check import Measurement, RunCheck, exceeds, fraction_of

_HACKED = Limit(0.3, "above 0.3 of the range of rewards, while held-out accuracy does not rise", "rldoctor")
_FLAT = 0.02  # of a held-out accuracy: no rise
_UNRELATED_ADVANTAGE = Limit(
    0.9, "mean correlation within a group below 0.9, or groups whose mean is off 0 by a fifth of an advantage", "torl"
)
_OFFSET = 0.2  # of the mean size of an advantage
_CENTERED = ("grpo", "dr_grpo", "rloo")  # estimators whose advantages are linear in a group's rewards, with mean 0
_RULING = Limit(0.9, "above 0.9 of the variance, by a part that does not follow the answers", "rldoctor")
_FOLLOWS = 0.5  # correlation of a part with correctness
_DEAD = Limit(
    0.0, "no variance since the first step, in at least 10 steps, while the reward does not rise", "rldoctor; torl"
)
_NOISE = Limit(0.01, "differences below 0.01 of the range of rewards in more than a quarter of the groups", "torl")
_PENALTIES = ("overlong", "failed_code", "malformed_turn")
_EXPLAINED = 0.3  # mean correlation within groups with a property of the response
_MANY = 0.25
_CREDITED = Limit(0, "any", "open-instruct#1887, verl#7853")
_UNGRADED = Limit(
    0.01,
    "above 0.01 by 3 standard deviations, or any answer that equals the reference and is wrong",
    "torl; verl#5635, trl#5281",
)
_reward, _is_correct = attrgetter("reward"), attrgetter("correct")


def _advantage(member: Member) -> float:
    return member.advantage or 0.0


def _part(name: str) -> Callable[[Member], float]:
    return lambda member: member.parts.get(name, 0.0)


def _span(history: StepHistory) -> float:
    rewards = [member.reward for step in history.steps for member in step.members]
    return max(rewards) - min(rewards) if rewards else 0.0


@RunCheck(
    "The training reward rises and held-out accuracy does not: the policy learns the grader, not the problems.",
    metric="rise of the training reward minus rise of the held-out accuracy",
    limits=(_HACKED,),
    fix="a stricter grader (reward.parts), hidden checks, more problems (data.train)",
)
def reward_hacking(history: StepHistory) -> Measurement | None:
    """Compare the rises of the training reward and of the accuracy on evaluation sets."""
    rises = _rises(history.evaluations, names.ACCURACY) or _rises(history.evaluations, names.GREEDY_ACCURACY)
    if not rises:
        raise MissingInputError("fewer than two evaluations")
    span = _span(history)
    if not span:
        raise MissingInputError("all rewards are equal")
    rise = (history.now(names.REWARD_MEAN) - history.before(names.REWARD_MEAN)) / span
    held_out = fmean(rises)
    if rise - max(0.0, held_out) <= _HACKED.value or held_out > _FLAT:
        return None
    text = f"the training reward rose by {rise:.2f} of its range, held-out accuracy by {held_out:+.3f}"
    ranked = sorted(history.members, key=lambda member: (member.correct, -member.reward))
    return Measurement(rise - held_out, text, ranked)


def _rises(evaluations: Sequence[Row], metric: str) -> list[float]:
    """Return the rise of a metric on each set with two evaluations."""
    series = (values_of(evaluations, names.evaluation_name(name, metric))[1] for name in evaluation_sets(evaluations))
    return [values[-1] - values[0] for values in series if len(values) > 1]


@RunCheck(
    "The reward does not follow the answers: differences within groups have another cause.",
    metric="correlation of reward and correctness within groups",
    limits=(UNRELATED,),
    fix="the weights of reward.parts, and the part that differs",
    fires="below",
)
def reward_without_answer(history: StepHistory) -> Measurement | None:
    """Correlate rewards with correctness within the groups in which both differ."""
    groups = [
        group
        for group in compared_groups(history.recent)
        if not is_uniform(group) and len({member.correct for member in group}) > 1
    ]
    if len(groups) < MIN_GROUPS:
        raise MissingInputError(f"{len(groups)} of {MIN_GROUPS} groups with right and wrong answers")
    found = correlation_within(groups, _reward, _is_correct)
    if found is None:
        return None
    ranked = sorted((each for group in groups for each in group), key=lambda member: (member.correct, -member.reward))
    return Measurement(found, f"the correlation within groups is {found:+.2f}", ranked)


@RunCheck(
    "The advantages do not follow the rewards: responses are trained with the rewards of other responses.",
    metric="correlation of advantage and reward within groups",
    limits=(_UNRELATED_ADVANTAGE,),
    fix="custom components that select or reorder responses; torl verify computes the advantages again",
    fires="below",
)
def advantage_without_reward(history: StepHistory) -> Measurement | None:
    """Correlate advantages with rewards within the groups of the batch in which rewards differ."""
    algorithm = history.config.algorithm
    is_shuffled = history.config.ablation.shuffle == "rewards"
    is_changed = is_shuffled or algorithm.penalizes_rewards or algorithm.normalize_advantages
    if is_changed or algorithm.estimator.name not in _CENTERED:
        raise MissingInputError("the advantages depend on more than the rewards of the group")
    batch = [[each for each in group if each.advantage is not None] for group in compared_groups(history.recent)]
    groups = [group for group in batch if len(group) > 1 and not is_uniform(group)]
    if len(groups) < MIN_GROUPS:
        raise MissingInputError(f"{len(groups)} of {MIN_GROUPS} groups with different rewards in the batch")
    members = [each for group in groups for each in group]
    offset = fmean(abs(fmean(map(_advantage, group))) for group in groups)
    size = fmean(abs(_advantage(each)) for each in members)
    if offset > _OFFSET * size:  # as if responses were compared with responses of other groups
        text = f"the mean advantage of a group is off 0 by {offset:.2f}, an advantage by {size:.2f}"
        return Measurement(0.0, text, members)
    # Estimators scale each group by another factor: deviations of several groups are not compared.
    found = fmean(correlation_within([group], _reward, _advantage) or 0.0 for group in groups)
    ranked = sorted(members, key=lambda each: each.reward * _advantage(each))
    return Measurement(found, f"the mean correlation within a group is {found:+.2f}", ranked)


@RunCheck(
    "One part dominates the reward, and it does not follow the answers.",
    metric="fraction of the variance of the reward within groups",
    limits=(_RULING,),
    fix="reward.parts: lower its weight, or normalize the parts separately (GDPO)",
    fires="above",
)
def ruling_part(history: StepHistory) -> Measurement | None:
    """Find a part with nearly all variance that does not follow correctness."""
    groups = compared_groups(history.recent)
    parts = {name for group in groups for member in group for name in member.parts}
    if len(parts) < 2:
        raise MissingInputError("the reward has a single part")
    variances = {part: float(np.var(deviations_within(groups, _part(part)))) for part in parts}
    total = sum(variances.values())
    if not total:
        return None
    name, variance = max(variances.items(), key=lambda item: item[1])
    follows = correlation_within(groups, _part(name), _is_correct)
    if follows is None or follows > _FOLLOWS:
        return None
    text = f"{name} has {variance / total:.0%} of the variance, and a correlation of {follows:+.2f} with correctness"
    ranked = sorted((each for group in groups for each in group), key=lambda member: -member.parts.get(name, 0.0))
    return Measurement(variance / total, text, ranked)


@RunCheck(
    "A part of the reward has had the same value for every response, so that nothing is learned from it.",
    metric="variance of a part of the reward over all responses",
    limits=(_DEAD,),
    fix="the function of this part in reward.parts, or its removal",
    while_flat=True,
)
def dead_part(history: StepHistory) -> Measurement | None:
    """Find parts that never differed. A penalty that no response earned does not count."""
    if len(history.steps) < 2 * RECENT:
        raise MissingInputError(f"{len(history.steps)} of {2 * RECENT} steps")
    members = members_in(history.steps)
    if all(len(member.parts) < 2 for member in history.members):
        raise MissingInputError("the reward has a single part")
    values: defaultdict[str, set[float]] = defaultdict(set)
    for name, value in (part for member in members for part in member.parts.items()):
        values[name].add(value)
    parts = getattr(history.config.reward.options, "parts", {}).items()
    penalties = {
        name
        for name, part in parts
        if part.name in _PENALTIES or getattr(part.common_options, "weight", 1.0) < 0  # it only lowers the reward
    }
    dead = {name: value for name, (value, *others) in values.items() if not others and (value or name not in penalties)}
    if not dead:
        return None
    text = ", ".join(f"{name} is {value:g}" for name, value in dead.items())
    return Measurement(0.0, f"{text} for all of {len(members)} compared responses", members[::-1])


@RunCheck(
    "Rewards of equal answers differ by small amounts that nothing explains, as if noise was added "
    "to avoid equal groups.",
    metric="range of rewards among equally correct responses of a group",
    limits=(_NOISE,),
    fix="remove the noise from the reward; selection.groups.zero_variance drops groups without a signal",
)
def jittered_rewards(history: StepHistory) -> Measurement | None:
    """Find groups whose equally graded responses have slightly different rewards, unrelated to any property."""
    groups = compared_groups(history.recent)
    span = _span(history)
    noisy: list[list[Member]] = []
    for group in groups:
        equal: defaultdict[tuple[object, ...], list[Member]] = defaultdict(list)
        for member in group:
            equal[(member.correct, member.valid_format, member.answered)].append(member)
        largest = max(equal.values(), key=len)
        rewards = {member.reward for member in largest}
        if len(largest) > 2 and len(rewards) > 2 and max(rewards) - min(rewards) < _NOISE.value * span:
            noisy.append(largest)
    if len(noisy) <= _MANY * len(groups):
        return None
    for property_of in (lambda each: each.tokens, lambda each: each.calls, lambda each: each.repeated):
        found = correlation_within(noisy, _reward, property_of)
        if found is not None and abs(found) > _EXPLAINED:
            return None
    largest_range = max(max(map(_reward, group)) - min(map(_reward, group)) for group in noisy)
    text = (
        f"in {len(noisy)} of {len(groups)} groups, equally correct responses have rewards that differ by at most "
        f"{largest_range:.2g}, unrelated to length, calls and repetition"
    )
    return Measurement(largest_range, text, (member for group in noisy for member in group))


@RunCheck(
    "Responses without an answer, or with another number than the reference, count as correct.",
    metric="fraction of correct responses without an answer or with another number, if the reward finds answers",
    limits=(_CREDITED,),
    fix="the reward: compare answers, and treat a missing one as wrong",
    fires="above",
)
def credit_without_answer(history: StepHistory) -> Measurement:
    """Find correct responses without the answer."""
    if not any(member.answered and member.correct for member in history.members):
        raise MissingInputError("no correct response has an answer that the reward records")
    text = "{count} of {all} responses are correct without an answer, or with another number than the reference"
    return fraction_of(history.members, lambda each: each.correct and (each.contradicts or not each.answered), text)


@RunCheck(
    "Answers are not compared with the reference, and count as wrong.",
    metric="fraction of responses that the grader failed on, and right answers that count as wrong",
    limits=(_UNGRADED,),
    fix="reward.grader_timeout_seconds, or the reward's comparison; selection.groups.undecided",
)
def ungraded_answers(history: StepHistory) -> Measurement | None:
    """Find failures of the grader, and answers that equal the reference without credit."""
    members = history.members
    text = "{count} answers equal the reference character for character and count as wrong"
    wrong = fraction_of(members, lambda each: each.exact and not each.correct, text)
    text = "the grader failed on {fraction:.1%} of the responses"
    failed = fraction_of(members, lambda each: each.failure is not None, text)
    if wrong.value:
        return wrong
    return failed if exceeds(failed.value, len(members), _UNGRADED.value) else None
