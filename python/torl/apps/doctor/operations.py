"""Diseases of the machinery and the data: stalls, lost episodes, evaluation problems among the training problems."""

import re
from functools import lru_cache
from statistics import median

from torl.apps.doctor.diagnosis import Finding, Limit, disease
from torl.apps.doctor.history import KEPT, RECENT, History, MissingInputError
from torl.records import metric_names as names

_STALL = Limit(6.0, "6 times the median of the steps before, and above 30 minutes", "miles' dashboard")
_STALL_SECONDS = 1800.0
_LOST = Limit(0.05, "above 0.05", "miles' dashboard")
_SHARED = Limit(0.01, "above 0.01 of the evaluation problems, by all of their 13-grams", "provenir")
_NGRAM = 13
_WORD = re.compile(r"\w+")


@disease(
    "stall",
    "A step took far longer than those before.",
    metric=names.TIME_STEP,
    limits=(_STALL,),
    remedy="the logs of the step; rollout.stall_timeout_seconds, tool timeouts (rollout.tools)",
)
def stall(history: History) -> Finding | None:
    """Find a stalled step among the latest."""
    values = history.series(names.TIME_STEP)
    if len(values) <= RECENT:
        raise MissingInputError(f"{len(values)} of {RECENT + 1} steps")
    now = values[-1]
    usual = median(values[:-1][-KEPT:])
    if now <= _STALL.value * usual or now <= _STALL_SECONDS:
        return None
    return Finding(now, f"the latest step took {now:.0f} s, those before {usual:.0f} s")


@disease(
    "lost-episodes",
    "Many episodes fail for reasons of the host, and are missing from their groups.",
    metric=f"{names.FAILED_EPISODES} / episodes",
    limits=(_LOST,),
    remedy="the tool, server or agent program that fails (the run's log names its last error); rollout.tools, "
    "rollout.max_failed_fraction",
    fires="above",
)
def lost_episodes(history: History) -> Finding:
    """Compare failed with complete episodes."""
    failed = history.now(names.FAILED_EPISODES)
    per_step = len(history.members) / len(history.recent)
    fraction = failed / (failed + per_step)
    size = history.config.rollout.samples_per_prompt
    short = (each for step in history.recent for group in step.groups if len(group) < size for each in group)
    return Finding(fraction, f"{fraction:.1%} of the latest episodes failed", short)


@disease(
    "contamination",
    "Problems of an evaluation set are trained on.",
    metric="fraction of evaluation problems whose words occur in a training problem",
    limits=(_SHARED,),
    remedy="data.train without these problems: torl data prepare --against",
    fires="above",
)
def contamination(history: History) -> Finding:
    """Find evaluation problems of which every 13-gram, or the whole text if shorter, is in the training problems."""
    if not history.evaluated:
        raise MissingInputError("no trajectories of an evaluation")
    members = [member for step in history.steps for member in step.members]
    trained: set[tuple[str, ...]] = set()
    for question in {member.question for member in members}:
        trained |= _ngrams(question)
    texts = {question: _ngrams(question) for question in history.evaluated}
    shared = {question for question, ngrams in texts.items() if ngrams and ngrams <= trained}
    fraction = len(shared) / len(history.evaluated)
    found = {ngram for question in shared for ngram in texts[question]}
    text = f"{len(shared)} of {len(history.evaluated)} evaluation problems are among the training problems"
    return Finding(fraction, text, (each for each in members if _ngrams(each.question) & found))


@lru_cache(maxsize=1 << 14)
def _ngrams(text: str) -> frozenset[tuple[str, ...]]:
    """Return the 13-grams of the words of a text, or all of its words if it is shorter."""
    words = _WORD.findall(text.lower())
    size = min(_NGRAM, len(words))
    return frozenset(tuple(words[start : start + size]) for start in range(len(words) - size + 1) if words)
