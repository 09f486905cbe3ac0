"""Checks of one worker: a replica of the engine, or a node of the sandbox, that differs from the others."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

from torl.run.records.thresholds import Limit
from torl.training.health import inexact_logprobs, rounding_limit
from torl_lab.doctor.history import MissingInputError, StepHistory
from torl_lab.doctor.run_check import Measurement, RunCheck

Event = TypeVar("Event")

_SLOW = Limit(3.0, "3 times the median time of the others", "torl; miles' dashboard takes 6 for steps")
_FAILS = Limit(0.1, "failures above those of the others by 0.1, at 4 standard deviations", "torl")
_SIGMAS = 4.0
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
    for replica, own in replicas.items():
        others = [each for number, rest in replicas.items() if number != replica for each in rest]
        evidence = sorted(own, key=lambda member: -member.token_seconds)
        if text := _slowness([each.token_seconds for each in own], [each.token_seconds for each in others], 0.0):
            return Measurement(replica, f"replica {replica} of the engine takes {text} per token", evidence)
        rest = [gap for number, gap in gaps.items() if number != replica]
        if rest and gaps.get(replica, 0.0) > max(rounding_limit(history.config), _GROWN * fmean(rest)):
            text = f"{gaps[replica]:.2g} nats, the gap of the others {fmean(rest):.2g}"
            return Measurement(replica, f"the gap of replica {replica} of the engine to the learner is {text}", own)
    for node, done in calls.items():
        rest_done = [each for number, rest in calls.items() if number != node for each in rest]
        evidence = [each for each in members if any(number == node for number, _, _ in each.node_calls)]
        if text := _slowness([wait for _, wait in done], [wait for _, wait in rest_done], _MIN_SECONDS):
            return Measurement(node, f"a call waits for node {node} of the sandbox {text}", evidence)
        if text := _failures([not ok for ok, _ in done], [not ok for ok, _ in rest_done]):
            return Measurement(node, f"node {node} of the sandbox fails on {text}", evidence)
    return None


def _by_worker(events: Sequence[tuple[int, Event]]) -> Mapping[int, list[Event]]:
    """Return the events of each worker that has enough of them."""
    found: defaultdict[int, list[Event]] = defaultdict(list)
    for worker, event in events:
        found[worker].append(event)
    return {worker: own for worker, own in found.items() if len(own) >= _MIN_EVENTS}


def _slowness(own: Sequence[float], others: Sequence[float], smallest: float) -> str:
    """Return both medians as text if a worker is slow, else ""."""
    if not own or not others or median(own) <= max(_SLOW.value * median(others), smallest):
        return ""
    return f"{median(own):.3g} s, the others {median(others):.3g} s"


def _failures(own: Sequence[bool], others: Sequence[bool]) -> str:
    """Return both fractions of failures as text if those of a worker are more frequent, else ""."""
    if not own or not others:
        return ""
    pooled = (sum(own) + sum(others)) / (len(own) + len(others))
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / len(own) + 1 / len(others)))
    difference = fmean(own) - fmean(others)
    if difference <= max(_FAILS.value, _SIGMAS * deviation):
        return ""
    return f"{fmean(own):.0%} of its calls, the others on {fmean(others):.0%}"


def _gaps(history: StepHistory) -> dict[int, float]:
    """Return the mean gap of each replica over the recorded tokens of the latest steps."""
    sums: defaultdict[int, list[float]] = defaultdict(list)
    for step in history.recent:
        if step.tokens is not None:
            for replica, gap in step.tokens.replica_gaps.items():
                sums[replica].append(gap)
    return {replica: fmean(gaps) for replica, gaps in sums.items()}
