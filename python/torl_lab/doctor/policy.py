"""Checks of the policy's text: truncation, entropy, length, gibberish, repetition."""

from statistics import fmean

from torl.base.types import FinishReason
from torl.run.display.series import rank_correlation
from torl.run.records import metric_names as names
from torl.run.records.thresholds import COLLAPSED_ENTROPY, MORE_ENTROPY, TRUNCATED, Limit
from torl_lab.doctor.facts import RARE_ID
from torl_lab.doctor.history import RECENT, StepHistory, is_rising, members_in
from torl_lab.doctor.run_check import Measurement, RunCheck, exceeds, fraction_of

_MAX_TRUNCATED = 0.5
_AT_LIMIT = Limit(0.02, "above 0.02 of the responses, by 3 standard deviations", "OpenRLHF!1327; torl")
_LOW, _HIGH = 0.25, 1.0
_SOLVED = 0.95  # of the responses: a policy that is right may be sure
_BLOWN_UP = Limit(2.0, "above twice the first steps' and 1 nat more, while the reward does not rise", "torl")
_GIBBERISH = Limit(0.01, "above 0.01 of the responses", "arXiv 2510.02387 (token), torl (fraction)")
_RUNAWAY = Limit(
    1.5,
    "above 1.5 times the first steps' (the middle's if the reward rose), with a rank correlation of 0.6 with the step, "
    "while the reward does not rise",
    "rldoctor",
)
_CORRELATED = 0.6
_SURE_RUN = Limit(3000, "3,000 sure tokens in a row", "MiniMax-M1, arXiv 2506.13585")
_REPEATED = Limit(0.3, "above 0.3 of the responses, at twice the fraction of the first steps", "rlprobe")
_REPETITIVE = 0.5  # of a text's substrings occur earlier in it


@RunCheck(
    "Responses are cut at the token limit, before an answer that could be rewarded.",
    metric=names.TRUNCATED,
    limits=(TRUNCATED,),
    fix="rollout.max_response_tokens, a mask of cut responses (selection.mask), a length penalty (reward.parts)",
)
def truncation(history: StepHistory) -> Measurement | None:
    """Find many cut responses, unless no response ever ended by itself, which no-end-token finds."""
    now = history.now(names.TRUNCATED)
    if now <= TRUNCATED.value or (history.is_learning and now <= _MAX_TRUNCATED):
        return None
    if min(history.series(names.TRUNCATED)) == 1:
        return None
    cut = (each for step in history.recent for each in step.members if each.finish is FinishReason.LENGTH)
    return Measurement(now, f"{now:.0%} of the latest responses are cut", cut)


@RunCheck(
    "Responses that reach the token limit count as complete: masks and penalties of cut responses miss them.",
    metric="fraction of responses that end by themselves at the token limit",
    limits=(_AT_LIMIT,),
    fix="the agent program, engine or component that reports why a response ended",
)
def cut_as_complete(history: StepHistory) -> Measurement | None:
    """Find responses of the maximum length that are not recorded as cut."""
    text = "{fraction:.0%} of the responses have the maximum length and count as complete"
    at_limit = {
        member.address
        for step in history.steps[-RECENT:]
        for member in step.members
        if member.length >= history.config.at_step(step.number).rollout.max_response_tokens
    }
    members = history.members
    found = fraction_of(members, lambda each: each.address in at_limit and each.finish is not FinishReason.LENGTH, text)
    return found if exceeds(found.value, len(members), _AT_LIMIT.value) else None


@RunCheck(
    "The policy became sure of its tokens while its reward stopped rising: it no longer explores.",
    metric=names.ENTROPY,
    limits=(COLLAPSED_ENTROPY,),
    fix=MORE_ENTROPY,
    while_flat=True,
)
def entropy_collapse(history: StepHistory) -> Measurement | None:
    """Compare entropy with that of the first steps, unless the policy still learns or has solved its problems."""
    before, now = history.before(names.ENTROPY), history.now(names.ENTROPY)
    collapsed = now < COLLAPSED_ENTROPY.value * before or (before > _HIGH and now < _LOW)
    if not collapsed or history.now(names.ACCURACY) > _SOLVED:
        return None
    text = f"entropy fell from {before:.3f} to {now:.4f} nats, and the reward no longer rises"
    wrong = (member for step in history.recent for member in step.members if not member.correct)
    return Measurement(now, text, wrong)


@RunCheck(
    "Entropy rises without a gain in reward: the policy drifts into noise.",
    metric=names.ENTROPY,
    limits=(_BLOWN_UP,),
    fix="a lower learner.learning_rate or algorithm.entropy_bonus, the template, learner.max_logprob_gap",
    while_flat=True,
)
def entropy_blow_up(history: StepHistory) -> Measurement | None:
    """Compare entropy with that of the first steps."""
    before, now = history.before(names.ENTROPY), history.now(names.ENTROPY)
    if now <= _BLOWN_UP.value * before or now <= before + 1:
        return None
    members = (member for step in history.recent for member in step.members)
    return Measurement(now, f"entropy rose from {before:.2f} to {now:.2f} nats", members)


@RunCheck(
    "Responses contain rare tokens that the policy itself finds improbable.",
    metric=f"fraction of responses with a token above id {RARE_ID:,} and below -log(vocabulary) - 2",
    limits=(_GIBBERISH,),
    fix="a mask of these responses (selection.mask), rollout.temperature, the gap between engine and learner",
    fires="above",
)
def gibberish(history: StepHistory) -> Measurement:
    """Count responses with improbable rare tokens."""
    text = "{fraction:.1%} of the responses have improbable rare tokens"
    return fraction_of(history.members, lambda each: each.improbable, text, first=lambda each: each.improbable)


@RunCheck(
    "Responses grow longer and longer without a gain in reward.",
    metric=names.SAMPLED_TOKENS,
    limits=(_RUNAWAY,),
    fix="algorithm.aggregation (token), a length penalty (reward.parts), rollout.max_response_tokens",
    fires="above",
    while_flat=True,
)
def length_runaway(history: StepHistory) -> Measurement | None:
    """Compare lengths with those of the first steps, or of the middle of a run whose reward rose since the first."""
    before, now = history.before(names.SAMPLED_TOKENS), history.now(names.SAMPLED_TOKENS)
    values = history.series(names.SAMPLED_TOKENS)
    if is_rising(history.series(names.REWARD_MEAN)):
        before = fmean(values[len(values) // 2 :][:RECENT])
    trend = rank_correlation(range(len(values)), values)
    if trend is None or trend < _CORRELATED:
        return None
    ranked = sorted((member for step in history.recent for member in step.members), key=lambda each: -each.tokens)
    return Measurement(now / before, f"responses grew from {before:.0f} to {now:.0f} sampled tokens", ranked)


@RunCheck(
    "Responses repeat themselves.",
    metric="consecutive tokens with a probability above 0.99, and responses of which half occurs twice",
    limits=(_SURE_RUN, _REPEATED),
    fix="selection.mask (repetitive), a penalty (reward.parts), rollout.max_response_tokens",
)
def repetition(history: StepHistory) -> Measurement | None:
    """Find long runs of sure tokens, and texts that repeat more than the first ones."""
    members = history.members
    longest = max(members, key=lambda member: member.sure_run)
    if longest.sure_run >= _SURE_RUN.value:
        text = f"{longest.sure_run:,} consecutive tokens have a probability above 0.99"
        return Measurement(longest.sure_run, text, (longest,))
    repetitive = sorted((each for each in members if each.repeated > _REPETITIVE), key=lambda each: -each.repeated)
    now = len(repetitive) / len(members)
    if now <= _REPEATED.value:
        return None
    before = fmean(member.repeated > _REPETITIVE for member in members_in(history.first))
    if now <= 2 * before:
        return None
    text = f"{now:.0%} of the responses repeat themselves, {before:.0%} did at first"
    return Measurement(now, text, repetitive)
