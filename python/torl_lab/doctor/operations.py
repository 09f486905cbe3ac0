"""Checks of the machinery and the data: stalls, lost episodes, slow or failing workers, contamination."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, median
from typing import TypeVar

from torl.run.records import metric_names as names
from torl.run.records.thresholds import Limit
from torl.training.health import inexact_logprobs, rounding_limit
from torl_lab.doctor.history import KEPT, RECENT, MissingInputError, Step, StepHistory
from torl_lab.doctor.run_check import Measurement, RunCheck, certain_excess

_STALL = Limit(6.0, "6 times the median of the steps before, and above 30 minutes", "miles' dashboard")
_STALL_SECONDS = 1800.0
_WAITED = Limit(0.2, "above 0.2", "torl, after a run on a GPU")
_LOST = Limit(0.05, "above 0.05", "miles' dashboard")
_SHARED = Limit(0.01, "above 0.01 of the evaluation problems, by all of their 13-grams", "provenir")
_NGRAM = 13
_WORD = re.compile(r"\w+")


@RunCheck(
    "A step took far longer than earlier steps.",
    metric=names.TIME_STEP,
    limits=(_STALL,),
    fix="the logs of the step; rollout.stall_timeout_seconds, tool timeouts (rollout.tools)",
)
def stall(history: StepHistory) -> Measurement | None:
    """Find a stalled step among the latest."""
    values = history.series(names.TIME_STEP)
    if len(values) <= RECENT:
        raise MissingInputError(f"{len(values)} of {RECENT + 1} steps")
    now = values[-1]
    usual = median(values[:-1][-KEPT:])
    if now <= _STALL.value * usual or now <= _STALL_SECONDS:
        return None
    return Measurement(now, f"the latest step took {now:.0f} s, those before {usual:.0f} s")


@RunCheck(
    "Steps wait for a single tool call, long after the other episodes have ended.",
    metric="fraction of the steps' time in which all wait for the episode with the slowest call",
    limits=(_WAITED,),
    fix="the tool's time limits, such as rollout.tools.python.cpu_seconds; rollout.max_staleness",
    fires="above",
)
def slow_calls(history: StepHistory) -> Measurement:
    """Compare each step's longest episode with the longest without its slowest call."""
    if history.config.rollout.max_staleness:
        raise MissingInputError("the learner does not wait for all episodes of a step")
    steps = [step for step in history.recent if any(each.calls for each in step.members)]
    if not steps:
        raise MissingInputError("no episode of the latest steps has a call")
    if any(step.metrics.get(name) is None for step in steps for name in (names.TIME_ROLLOUT, names.TIME_STEP)):
        raise MissingInputError(f"a step lacks {names.TIME_ROLLOUT} or {names.TIME_STEP}")
    fraction = sum(map(_waited_seconds, steps)) / max(1e-9, sum(step.metrics[names.TIME_STEP] for step in steps))
    slowest = sorted((each for step in steps for each in step.members), key=lambda each: -each.longest_wait)
    text = f"{fraction:.0%} of the steps' time passes waiting for one call, of up to {slowest[0].longest_wait:.1f} s"
    return Measurement(fraction, text, slowest)


def _waited_seconds(step: Step) -> float:
    """Return a lower bound of the seconds that a step waits for its slowest call."""
    longest = max(each.seconds for each in step.members)
    without = max(each.seconds - each.longest_wait for each in step.members)
    # Episodes that started later may have ended last: what their durations do not explain is not counted.
    unexplained: float = max(0.0, step.metrics[names.TIME_ROLLOUT] - longest)
    return max(0.0, longest - without - unexplained)


@RunCheck(
    "Many episodes fail for reasons of the host, and are missing from their groups.",
    metric=f"{names.FAILED_EPISODES} / episodes",
    limits=(_LOST,),
    fix="the tool, server or agent program that fails (the run's log names its last error); rollout.tools, "
    "rollout.max_failed_fraction",
    fires="above",
)
def lost_episodes(history: StepHistory) -> Measurement:
    """Compare failed with complete episodes."""
    failed = history.now(names.FAILED_EPISODES)
    per_step = len(history.members) / len(history.recent)
    fraction = failed / (failed + per_step)
    size = history.config.rollout.samples_per_prompt
    short = (each for step in history.recent for group in step.groups if len(group) < size for each in group)
    return Measurement(fraction, f"{fraction:.1%} of the latest episodes failed", short)


@RunCheck(
    "The training problems include problems of an evaluation set.",
    metric="fraction of evaluation problems whose words occur in a training problem",
    limits=(_SHARED,),
    fix="data.train without these problems: torl data prepare --against",
    fires="above",
)
def contamination(history: StepHistory) -> Measurement:
    """Find evaluation problems of which every 13-gram, or the whole text if shorter, is in the training problems."""
    if not history.evaluated:
        raise MissingInputError("no trajectories of an evaluation")
    members = [member for step in history.steps for member in step.members]
    trained = frozenset[tuple[str, ...]]().union(*map(_ngrams, {member.question for member in members}))
    texts = {question: _ngrams(question) for question in history.evaluated}
    shared = {question for question, ngrams in texts.items() if ngrams and ngrams <= trained}
    fraction = len(shared) / len(history.evaluated)
    found = {ngram for question in shared for ngram in texts[question]}
    text = f"{len(shared)} of {len(history.evaluated)} evaluation problems are among the training problems"
    return Measurement(fraction, text, (each for each in members if _ngrams(each.question) & found))


@lru_cache(maxsize=1 << 14)
def _ngrams(text: str) -> frozenset[tuple[str, ...]]:
    """Return the 13-grams of the words of a text, or all of its words if it is shorter."""
    words = _WORD.findall(text.lower())
    size = min(_NGRAM, len(words))
    return frozenset(tuple(words[start : start + size]) for start in range(len(words) - size + 1) if words)


# --- workers: a replica of the engine, or a node of the sandbox, that differs from the others ---------------------

Event = TypeVar("Event")

_SLOW = Limit(3.0, "3 times the median time of the others", "torl; miles' dashboard takes 6 for steps")
_FAILS = Limit(0.1, "failures above those of the others by 0.1, at 4 standard deviations", "torl")
_MIN_SECONDS = 0.1  # of a call: below, waits are noise
_MIN_EVENTS = 20
_GROWN = 3.0  # times the gap of the other replicas


@RunCheck(
    "One replica of the engine, or one node of the sandbox, is slower than the others, fails more often, or computes "
    "other numbers.",
    metric="time per token and gap to the learner by replica; wait and failures of calls by node",
    limits=(_SLOW, _FAILS),
    fix="the named replica or node: its log, its clock and temperature; restart it or remove it "
    "(engine.replicas, cluster)",
)
def sick_worker(history: StepHistory) -> Measurement | None:
    """Compare each worker with all others."""
    members = history.members
    replicas = _by_worker([(each.replica, each) for each in members if each.tokens])
    calls = _by_worker([(node, (ok, wait)) for each in members for node, ok, wait in each.node_calls])
    if len(replicas) < 2 and len(calls) < 2:
        raise MissingInputError("fewer than two replicas or nodes with recorded work")
    gaps = _gaps(history) if inexact_logprobs(history.config) is None else {}
    for replica, own, others in replicas:
        evidence = sorted(own, key=lambda member: -member.token_seconds)
        if text := _slowness([each.token_seconds for each in own], [each.token_seconds for each in others], 0.0):
            return Measurement(replica, f"replica {replica} of the engine takes {text} per token", evidence)
        rest = [gap for number, gap in gaps.items() if number != replica]
        if rest and gaps.get(replica, 0.0) > max(rounding_limit(history.config), _GROWN * fmean(rest)):
            text = f"{gaps[replica]:.2g} nats, the gap of the others {fmean(rest):.2g}"
            return Measurement(replica, f"the gap of replica {replica} of the engine to the learner is {text}", own)
    for node, done, done_by_others in calls:
        evidence = [each for each in members if any(number == node for number, _, _ in each.node_calls)]
        if text := _slowness([wait for _, wait in done], [wait for _, wait in done_by_others], _MIN_SECONDS):
            return Measurement(node, f"a call waits for node {node} of the sandbox {text}", evidence)
        if text := _failures([not ok for ok, _ in done], [not ok for ok, _ in done_by_others]):
            return Measurement(node, f"node {node} of the sandbox fails on {text}", evidence)
    return None


def _by_worker(events: Sequence[tuple[int, Event]]) -> list[tuple[int, list[Event], list[Event]]]:
    """Return each worker that has enough events, with its events and those of the other workers."""
    found: defaultdict[int, list[Event]] = defaultdict(list)
    for worker, event in events:
        found[worker].append(event)
    known = {worker: own for worker, own in found.items() if len(own) >= _MIN_EVENTS}
    return [
        (worker, own, [each for other, rest in known.items() if other != worker for each in rest])
        for worker, own in known.items()
    ]


def _slowness(own: Sequence[float], others: Sequence[float], smallest: float) -> str:
    """Return both medians as text if a worker is slow, else ""."""
    if not own or not others or median(own) <= max(_SLOW.value * median(others), smallest):
        return ""
    return f"{median(own):.3g} s, the others {median(others):.3g} s"


def _failures(own: Sequence[bool], others: Sequence[bool]) -> str:
    """Return both fractions of failures as text if those of a worker are more frequent, else ""."""
    if not own or not others or certain_excess(own, others) <= _FAILS.value:
        return ""
    return f"{fmean(own):.0%} of its calls, the others on {fmean(others):.0%}"


def _gaps(history: StepHistory) -> dict[int, float]:
    """Return the mean gap of each replica over the recorded tokens of the latest steps."""
    sums: defaultdict[int, list[float]] = defaultdict(list)
    recorded = [step.tokens.replica_gaps for step in history.recent if step.tokens is not None]
    for replica, gap in (each for gaps in recorded for each in gaps.items()):
        sums[replica].append(gap)
    return {replica: fmean(gaps) for replica, gaps in sums.items()}
