"""Checks of graders: crashes, failures and missing answers that are rewarded, and answers that are not compared."""

import math
from statistics import fmean

from torl.run.records.thresholds import Limit
from torl_lab.doctor.history import MissingInputError, StepHistory
from torl_lab.doctor.run_check import Measurement, RunCheck, fraction_of
from torl_lab.doctor.trends import exceeds

_REWARDED = Limit(0.2, "above the other responses' by 0.2, and by 4 standard deviations", "verl!7853; torl")
_SIGMAS, _MIN_RESPONSES = 4.0, 16
_ANY = Limit(0, "any", "open-instruct#1887, verl#7853")
_UNGRADED = Limit(
    0.01,
    "above 0.01 by 3 standard deviations, or any answer that equals the reference and is wrong",
    "torl; verl#5635, trl#5281",
)


@RunCheck(
    "Episodes whose tool crashed are graded and trained on: the policy is judged for a failure of the host.",
    metric="fraction of responses in the batch with a crashed call",
    limits=(_ANY,),
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
def rewarded_failures(history: StepHistory) -> Measurement | None:
    """Compare the accuracies of responses with and without a failed call, among those with calls."""
    members = [member for member in history.members if member.calls]
    failed, others = ([each for each in members if bool(each.failed) is fails] for fails in (True, False))
    if min(len(failed), len(others)) < _MIN_RESPONSES:
        raise MissingInputError(f"fewer than {_MIN_RESPONSES} responses with or without a failed call")
    rewarded, usual = (fmean(each.correct for each in own) for own in (failed, others))
    pooled = fmean(each.correct for each in members)
    if rewarded - usual <= _SIGMAS * math.sqrt(pooled * (1 - pooled) * (1 / len(failed) + 1 / len(others))):
        return None
    text = f"{rewarded:.0%} of {len(failed)} responses with a failed call are correct, {usual:.0%} of the others"
    return Measurement(rewarded - usual, text, (member for member in failed if member.correct))


@RunCheck(
    "Responses without an answer, or with another number than the reference, count as correct.",
    metric="fraction of correct responses without an answer or with another number, if the reward finds answers",
    limits=(_ANY,),
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
    wrong = fraction_of(
        history.members,
        lambda each: each.exact and not each.correct,
        "{count} answers equal the reference character for character and count as wrong",
    )
    failed = fraction_of(
        history.members, lambda each: each.failure is not None, "the grader failed on {fraction:.1%} of the responses"
    )
    if wrong.value:
        return wrong
    return failed if exceeds(failed.value, len(history.members), _UNGRADED.value) else None
