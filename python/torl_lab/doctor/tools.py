"""Checks of tool use: calls that vanish, crash or fail, void turns, invented results, tokens around calls."""

from statistics import fmean, median

from torl.base.types import FinishReason
from torl.run.records import metric_names as names
from torl.run.records.thresholds import Limit
from torl_lab.doctor.history import KEPT, MIN_RESPONSES, RECENT, MissingInputError, StepHistory, members_in
from torl_lab.doctor.run_check import Measurement, RunCheck, certain_excess, exceeds, fraction_of, leaps

_VANISHED = Limit(
    0.1, "below 0.1 of its highest mean of 5 steps, while the reward does not rise", "arXiv 2602.01204; torl"
)
_USED = 0.1  # of the calls per response: less is not a habit that can vanish
_VOID = Limit(0.3, "above 0.3, and above its start by 0.2, while the reward does not rise", "SimpleTIR drops any; torl")
_VOID_RISE = 0.2
_INVENTED = Limit(
    0.05, "above 0.05 of the trained responses by 3 standard deviations, and not falling", "AgenticArXiv-RL#80; torl"
)
_SPIKE = Limit(
    3.0,
    "above 3 times its start and 8 standard deviations, while calls do not rise",
    "rldoctor's spikes; arXiv 2606.26027",
)
_CRASHED = Limit(0, "any", "open-instruct#1887, verl#7853")
_REWARDED = Limit(0.2, "above the other responses' by 0.2, and by 4 standard deviations", "verl!7853; torl")
_MIN_CALLING = 16
_ENDLESS = Limit(0.0, "none of at least 32 responses since the first step", "torl; arXiv 2510.02387")
_SEPARATOR = Limit(0.0, "any, if more than half of the turns end with an end token", "verl!6921; torl")
_BRANCHES = Limit(1.0, "above 1 per episode", "slime#2288")


def _require_tools(history: StepHistory) -> None:
    config = history.config.rollout
    if not config.tools and config.environment is None and config.agent is None:
        raise MissingInputError("the run has no tool")
    if not config.max_tool_calls and config.agent is None:
        raise MissingInputError("rollout.max_tool_calls is 0")


@RunCheck(
    "The policy stopped calling its tools, without a gain in reward.",
    metric="tool calls per response",
    limits=(_VANISHED,),
    fix="a warm start with calls (torl finetune), reward.parts for calls that help, "
    "rollout.end_at_void_turn, learner.learning_rate",
    while_flat=True,
    needs=_require_tools,
)
def vanished_calls(history: StepHistory) -> Measurement | None:
    """Compare the calls of the latest steps with the highest mean before."""
    now = history.now(names.CALLS_PER_TRAJECTORY)
    values = history.series(names.CALLS_PER_TRAJECTORY)
    means = [fmean(values[start : start + RECENT]) for start in range(max(1, len(values) - 2 * RECENT + 1))]
    highest = max(means)
    if highest < _USED or now >= _VANISHED.value * highest:
        return None
    text = f"calls per response fell from {highest:.2f} to {now:.3f}"
    return Measurement(now, text, (member for member in history.members if not member.calls))


@RunCheck(
    "More and more turns have neither code, nor a call, nor an answer.",
    metric="fraction of responses with a void turn",
    limits=(_VOID,),
    fix="rollout.end_at_void_turn, selection.mask (void_turn), a lower learner.learning_rate",
    fires="above",
    while_flat=True,
    needs=_require_tools,
)
def void_turns(history: StepHistory) -> Measurement | None:
    """Compare the fraction of responses with a void turn with that of the first steps."""
    before = fmean(member.void for member in members_in(history.first))
    text = f"{{fraction:.0%}} of the responses have a void turn, {before:.0%} of the first ones had"
    now = fraction_of(history.members, lambda each: each.void, text)
    return now if now.value > before + _VOID_RISE else None


@RunCheck(
    "The model writes results of tools itself, and is trained on them.",
    metric="fraction of trained responses with an invented result",
    limits=(_INVENTED,),
    fix="rollout.stop with the marker of results, a mask (selection.mask), rollout.format",
)
def invented_results(history: StepHistory) -> Measurement | None:
    """Find marked results in sampled text of trained responses."""
    recent = members_in(history.recent)
    trained = [member for member in recent if member.advantage is not None and member.invented is not None]
    if not trained:
        raise MissingInputError("the format does not mark results, or no response was trained")
    text = "{fraction:.1%} of the trained responses contain a result that no tool returned"
    found = fraction_of(trained, lambda each: each.invented, text)
    is_chance = not exceeds(found.value, len(trained), _INVENTED.value)
    return None if is_chance or _is_falling(history, found.value) else found


def _is_falling(history: StepHistory, now: float) -> bool:
    """Whether the fraction of invented results is below half of that of the first steps, so that it is unlearned."""
    early = history.first if len(history.steps) >= 2 * RECENT else []
    before = [member for step in early for member in step.members if member.invented is not None]
    return bool(before) and now < fmean(bool(member.invented) for member in before) / 2


@RunCheck(
    "The token that opens a call becomes probable where no call follows, which precedes a collapse of calls.",
    metric="mean probability of the call-opening token where no call opens",
    limits=(_SPIKE,),
    fix="stop and resume from an earlier checkpoint; learner.learning_rate, a KL term (algorithm.kl.coefficient)",
    needs=_require_tools,
)
def call_token_spike(history: StepHistory) -> Measurement | None:
    """Compare the probability with that of the earlier steps, unless calls rise with it."""
    recorded = [step.tokens for step in history.steps if step.tokens is not None]
    known = [(each.call_probability, each) for each in recorded if each.call_probability is not None]
    if not known:
        raise MissingInputError("no recorded probability of the call-opening token (run.token_groups)")
    if len(known) < 2 * RECENT:
        raise MissingInputError(f"{len(known)} of {2 * RECENT} steps with recorded tokens")
    values = [value for value, _ in known]
    now, reference = median(values[-RECENT:]), values[:-RECENT][-KEPT:]
    calls = history.series(names.CALLS_PER_TRAJECTORY)[:-RECENT][-KEPT:]
    if not calls:
        raise MissingInputError(f"no earlier step has {names.CALLS_PER_TRAJECTORY}")
    more_calls = history.now(names.CALLS_PER_TRAJECTORY) > 1.1 * fmean(calls)
    if more_calls or not leaps(now, reference, _SPIKE.value):
        return None
    text = f"the probability rose from {median(reference):.2g} to {now:.2g}, and calls did not"
    return Measurement(now, text, known[-1][1].calling)


@RunCheck(
    "Episodes whose tool crashed are graded and trained on: the policy is judged for a failure of the host.",
    metric="fraction of responses in the batch with a crashed call",
    limits=(_CRASHED,),
    fix="the tool's limits (rollout.tools), which must answer with an error or fail the episode "
    "(rollout.max_failed_fraction)",
    fires="above",
)
def graded_crash(history: StepHistory) -> Measurement:
    """Find crashed calls in trained responses."""
    if not any(member.calls for member in history.members):
        raise MissingInputError("no response calls a tool")
    text = "{count} of {all} responses have a crashed call and an advantage"
    return fraction_of(history.members, lambda each: each.crashed and each.advantage is not None, text)


@RunCheck(
    "Responses whose calls failed are correct more often than the others, as if a failure counted as a success.",
    metric="accuracy of responses with a failed call",
    limits=(_REWARDED,),
    fix="the reward: grade the answer, not the exit of a wrapper or the text of an error",
    fires="above",
)
def rewarded_failures(history: StepHistory) -> Measurement:
    """Compare the accuracies of responses with and without a failed call, among those with calls."""
    members = [member for member in history.members if member.calls]
    failed, others = ([each for each in members if bool(each.failed) is fails] for fails in (True, False))
    if min(len(failed), len(others)) < _MIN_CALLING:
        raise MissingInputError(f"fewer than {_MIN_CALLING} responses with or without a failed call")
    rewarded, usual = ([each.correct for each in own] for own in (failed, others))
    text = f"{fmean(rewarded):.0%} of {len(failed)} responses with a failed call are correct"
    evidence = (member for member in failed if member.correct)
    return Measurement(certain_excess(rewarded, usual), f"{text}, {fmean(usual):.0%} of the others", evidence)


@RunCheck(
    "No response ever ended by itself: the model and the template disagree about the end token.",
    metric="responses that end with an end token, a stop sequence or a message of the environment",
    limits=(_ENDLESS,),
    fix="data.template, rollout.stop, the tokenizer's end token",
)
def no_end_token(history: StepHistory) -> Measurement | None:
    """Find runs in which every response was cut."""
    members = [member for step in history.steps for member in step.members]
    if len(members) < MIN_RESPONSES:
        raise MissingInputError(f"{len(members)} of {MIN_RESPONSES} responses")
    if any(member.finish is not FinishReason.LENGTH for member in members):
        return None
    return Measurement(0, f"all of {len(members)} compared responses were cut at the token limit", members[::-1])


@RunCheck(
    "Episodes split into many token sequences, because their history is rendered again as other tokens.",
    metric="further token sequences per episode",
    limits=(_BRANCHES,),
    fix="an agent program that appends to its messages (rollout.agent), a template that keeps earlier turns",
    fires="above",
)
def split_episodes(history: StepHistory) -> Measurement:
    """Count the branches of episodes."""
    if history.config.rollout.agent is None:
        raise MissingInputError("no agent program renders messages")
    members = history.members
    mean = fmean(member.branches for member in members)
    ranked = sorted(members, key=lambda member: -member.branches)
    return Measurement(mean, f"an episode has {1 + mean:.1f} token sequences", ranked)


@RunCheck(
    "The end token between a turn and the message after it is lost, or written twice.",
    metric="fraction of the places where a message follows a turn that have no end token, or two",
    limits=(_SEPARATOR,),
    fix="rollout.format, which must write the text of the chat template between messages, or the agent program",
    fires="above",
)
def turn_separator(history: StepHistory) -> Measurement | None:
    """Count end tokens between turns and observations, in a run whose turns usually have one there."""
    members = [member for member in history.members if member.boundaries]
    if not members:
        raise MissingInputError("no turn is followed by a message")
    places = sum(member.boundaries for member in members)
    doubled, unseparated = sum(each.doubled for each in members), sum(each.unseparated for each in members)
    if 2 * unseparated >= places:
        raise MissingInputError("the format separates turns without the end token")
    text = f"of {places} places, {unseparated} have no end token and {doubled} have two"
    wrong = (each for each in members if each.doubled or each.unseparated)
    return Measurement((doubled + unseparated) / places, text, wrong)
