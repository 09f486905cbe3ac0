"""The museum's table in Markdown, from the scores of its runs."""

from collections.abc import Collection, Iterator, Mapping
from statistics import fmean, median
from typing import Any

from benchmarks.doctors.exhibits.catalog import Exhibit

TORL = ("doctor", "verify", "receipt", "replay")
"""Parts of torl whose names are compared with the ground truth."""
OTHERS = ("rldoctor", "rlprobe", "martingale")
"""Doctors with another vocabulary than torl's, for which any alarm counts that no flawless run has."""
GOAL = "goal: recall 0.95, no alarm on flawless runs, delay 3"


def lines(exhibits: Mapping[str, Exhibit], results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables: recall, false alarms and delay of each doctor, then a row for each exhibit."""
    flawless = {name: result for name, result in results.items() if name not in exhibits}
    false = {doctor: {alarm for run in flawless.values() for alarm in run.get(doctor, {})} for doctor in OTHERS}
    yield from summary(exhibits, results, flawless, false)
    yield ""
    yield f"| bug | thread | ground truth | {' | '.join((*TORL, *OTHERS))} | torl stops |"
    yield "|---" * (4 + len(TORL) + len(OTHERS)) + "|"
    for name, exhibit in exhibits.items():
        thread = f"[{exhibit.thread}]({exhibit.link})"
        truth = ", ".join(exhibit.truth)
        result = results.get(name)
        if result is None:
            yield f"| {name} | {thread} | {truth} |{' - |' * (len(TORL) + len(OTHERS) + 1)}"
            continue
        cells = [_cell(result.get(doctor), exhibit.truth) for doctor in TORL]
        cells += [_cell(result.get(doctor), _without(result.get(doctor), false[doctor])) for doctor in OTHERS]
        stopped = result["stop"].get("stop")
        yield f"| {name} | {thread} | {truth} | {' | '.join(cells)} | {'' if stopped is None else f'step {stopped}'} |"
    yield ""
    yield "**Bold**: a right name. In brackets: steps of the records when it was first given. -: not run or not scored."


def summary(
    exhibits: Mapping[str, Exhibit],
    results: Mapping[str, Mapping[str, Any]],
    flawless: Mapping[str, Mapping[str, Any]],
    false: Mapping[str, Collection[str]],
) -> Iterator[str]:
    """Yield the table of all doctors: recall, flawless runs with an alarm, and median delay."""
    run = {name: exhibits[name] for name in exhibits if name in results}
    yield "| doctor | found | recall | flawless runs with an alarm | median delay in steps |"
    yield "|---" * 5 + "|"
    rows: dict[str, Collection[str]] = {"torl, all": TORL, **{name: (name,) for name in (*TORL, *OTHERS)}}
    for label, parts in rows.items():
        delays = {
            name: delay
            for name, exhibit in run.items()
            if (delay := _delay(results[name], parts, exhibit, false)) is not None
        }
        alarmed = sum(any(result.get(part) for part in parts) for result in flawless.values())
        recall = f"{len(delays) / len(run):.2f}" if run else "-"
        delay = f"{median(delays.values()):g}" if delays else "-"
        yield f"| {label} | {len(delays)} of {len(run)} | {recall} | {alarmed} of {len(flawless)} | {delay} |"
    seconds = [result["run"]["seconds"] for result in results.values()]
    if seconds:
        yield ""
        yield f"{len(run)} of {len(exhibits)} bugs were run, {fmean(seconds):.0f} s each; {GOAL}."


def _delay(
    result: Mapping[str, Any], parts: Collection[str], exhibit: Exhibit, false: Mapping[str, Collection[str]]
) -> int | None:
    """Return the number of steps after which a right name was given, or None."""
    found = []
    for part in parts:
        named: Mapping[str, int] = result.get(part) or {}
        right = exhibit.truth if part in TORL else _without(named, false[part])
        found += [steps for name, steps in named.items() if name in right]
    return min(found, default=None)


def _without(named: Mapping[str, int] | None, false: Collection[str]) -> list[str]:
    return [name for name in named or {} if name not in false]


def _cell(named: Mapping[str, int] | None, right: Collection[str]) -> str:
    if named is None:
        return "-"
    texts = [
        f"**{name.removeprefix('verify:')}** ({steps})"
        if name in right
        else f"{name.removeprefix('verify:')} ({steps})"
        for name, steps in named.items()
    ]
    return ", ".join(texts)
