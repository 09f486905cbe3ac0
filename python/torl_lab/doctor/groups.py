"""Checks of groups: no signal, a format that is not learned, differences that shrink, dropped episodes."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

import numpy as np

from torl.run.records.thresholds import EQUAL_REWARDS, Limit
from torl_lab.doctor.facts import Member
from torl_lab.doctor.history import KEPT, MissingInputError, Step, StepHistory, members_in
from torl_lab.doctor.run_check import Measurement, RunCheck, exceeds

MIN_GROUPS: Final = 8
"""Minimum number of groups of the latest steps. Fractions of fewer are chance."""
_UNFORMATTED = Limit(0.1, "fewer than 0.1 of their responses have a valid format and an answer", "torl")
_SPREAD = Limit(0.05, "below 0.05 of the range of rewards, and below a tenth of its start", "rlprobe")
_DISCARD = Limit(1e-3, "p below 0.001", "Kolmogorov-Smirnov test; no published threshold")


def compared_groups(steps: Sequence[Step]) -> list[list[Member]]:
    """Return the groups of at least two members.

    Raises:
        MissingInputError: The steps have too few of these groups.
    """
    groups = [group for step in steps for group in step.groups if len(group) > 1]
    if len(groups) < MIN_GROUPS:
        raise MissingInputError(f"{len(groups)} of {MIN_GROUPS} groups of at least two responses")
    return groups


def is_uniform(group: Sequence[Member]) -> bool:
    """Whether all rewards of a group are equal."""
    return len({member.reward for member in group}) == 1


def _unformatted_fraction(groups: Sequence[Sequence[Member]]) -> float:
    """Return the fraction of responses without a valid format or without any answer, if the reward finds answers."""
    members = [member for group in groups for member in group]
    return fmean(not (member.valid_format and member.answered) for member in members)


@RunCheck(
    "All responses of most groups have the same reward, so that nothing can be learned from them.",
    metric="fraction of groups with equal rewards",
    limits=(EQUAL_REWARDS,),
    fix="harder or easier problems (data.train), rollout.samples_per_prompt, selection.max_rounds",
    while_flat=True,
)
def no_signal(history: StepHistory) -> Measurement | None:
    """Find uniform groups that a missing format does not explain."""
    uniform, fraction = _uniform_groups(history)
    if not uniform or _lacks_format(history, uniform):
        return None
    solved = sum(all(member.correct for member in group) for group in uniform)
    failed = sum(not any(member.correct for member in group) for group in uniform)
    text = f"{fraction:.0%} of the groups have equal rewards: {solved} all correct, {failed} all wrong"
    return Measurement(fraction, text, (member for group in uniform for member in group))


@RunCheck(
    "Groups have equal rewards because hardly any response has the format that the reward reads.",
    metric="fraction of groups with equal rewards, and of their responses with a valid format and an answer",
    limits=(EQUAL_REWARDS, _UNFORMATTED),
    fix="a warm start (torl finetune), a template with an example (data.template), or a reward part for the format",
    while_flat=True,
)
def unlearned_format(history: StepHistory) -> Measurement | None:
    """Find uniform groups without a valid format."""
    uniform, fraction = _uniform_groups(history)
    if not uniform or not _lacks_format(history, uniform):
        return None
    missing = _unformatted_fraction(uniform)
    text = f"{fraction:.0%} of the groups have equal rewards; {missing:.0%} of their responses have no readable answer"
    return Measurement(missing, text, (each for group in uniform for each in group if not each.answered))


def _uniform_groups(history: StepHistory) -> tuple[list[list[Member]], float]:
    """Return the groups with equal rewards, or none if they are not more than usual, and their fraction.

    Raises:
        MissingInputError: The estimator learns from these groups, too, or there are too few groups.
    """
    comparison = history.config.reward_comparison
    rewards = {member.reward for step in history.recent for member in step.members}
    if comparison == "none" or (comparison == "batch" and len(rewards) > 1):
        raise MissingInputError("the estimator learns from groups of equal rewards, too")
    groups = compared_groups(history.recent)
    uniform = [group for group in groups if is_uniform(group)]
    fraction = len(uniform) / len(groups)
    return (uniform if exceeds(fraction, len(groups), EQUAL_REWARDS.value) else []), fraction


def _lacks_format(history: StepHistory, uniform: Sequence[Sequence[Member]]) -> bool:
    """Whether the format explains uniform groups. A reward that never finds an answer may not look for one."""
    reads_answers = any(member.answered for step in history.steps for member in step.members)
    demands_format = any(not member.valid_format for group in uniform for member in group)
    return (reads_answers or demands_format) and _unformatted_fraction(uniform) > 1 - _UNFORMATTED.value


@RunCheck(
    "The rewards of a group still differ, but by much less than they did: normalization amplifies noise.",
    metric="mean standard deviation of rewards in groups with different rewards, relative to the range of rewards",
    limits=(_SPREAD,),
    fix="harder problems (data.train), smaller weights of continuous reward parts, "
    "algorithm.estimator without division by the standard deviation",
    fires="below",
)
def shrunken_differences(history: StepHistory) -> Measurement | None:
    """Compare the spread of rewards in groups with that of the first steps."""
    before = [group for group in compared_groups(history.first) if not is_uniform(group)]
    now = [group for group in compared_groups(history.recent) if not is_uniform(group)]
    rewards = [member.reward for step in history.steps for member in step.members]
    span = max(rewards) - min(rewards)
    if not before or not now:
        return None  # as no-signal finds
    first, last = (
        fmean(float(np.std([each.reward for each in group])) for group in groups) / span for groups in (before, now)
    )
    if last >= first / 10:
        return None
    text = f"the standard deviation in groups fell from {first:.3f} to {last:.4f} of the range of rewards"
    return Measurement(last, text, (member for group in now for member in group))


@RunCheck(
    "Trained responses differ in length from dropped or lost responses of the same groups.",
    metric="difference of the lengths' distributions, of trained and of dropped responses",
    limits=(_DISCARD,),
    fix="selection.members, selection.mask and tool timeouts that do not depend on length; rollout.max_staleness",
)
def discard_bias(history: StepHistory) -> Measurement | None:
    """Compare lengths within groups of which a part is trained, and of groups with lost episodes with complete ones."""
    steps, size = history.steps[-KEPT:], history.config.rollout.samples_per_prompt
    groups = [group for step in steps for group in step.groups]
    partly = [each for group in groups if len({each.advantage is None for each in group}) > 1 for each in group]
    trained = [each for each in partly if each.advantage is not None]
    dropped = [each for each in partly if each.advantage is None]
    complete = [each for group in groups if len(group) >= size for each in group]
    with_losses = [each for group in groups if len(group) < size for each in group]
    for one, other, form in (
        (trained, dropped, "trained responses have {:.0f} tokens, dropped ones of the same groups {:.0f}"),
        (complete, with_losses, "complete groups have {:.0f} tokens per response, groups with lost episodes {:.0f}"),
    ):
        if len(one) < 2 * size or len(other) < 2 * size:
            continue
        lengths = [[member.tokens for member in members] for members in (one, other)]
        statistic, p = kolmogorov_smirnov(*lengths)
        if p < _DISCARD.value and fmean(lengths[1]) > fmean(lengths[0]):
            text = form.format(*map(fmean, lengths)) + f" (KS {statistic:.2f}, p {p:.1g})"
            return Measurement(statistic, text, [*sorted(other, key=lambda member: -member.tokens)])
    members_in(steps)
    return None


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the statistic and the asymptotic p-value of the two-sample test of Kolmogorov and Smirnov."""
    x, y = np.sort(np.asarray(one, np.float64)), np.sort(np.asarray(other, np.float64))
    points = np.concatenate([x, y])
    statistic = float(
        np.abs(np.searchsorted(x, points, "right") / len(x) - np.searchsorted(y, points, "right") / len(y)).max()
    )
    scaled = statistic * math.sqrt(len(x) * len(y) / (len(x) + len(y)))
    if scaled < 0.2:
        return statistic, 1.0
    terms = (2 * (-1) ** (index - 1) * math.exp(-2 * index**2 * scaled**2) for index in range(1, 101))
    return statistic, min(1.0, max(0.0, sum(terms)))
