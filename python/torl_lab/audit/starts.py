"""The check of a run's starts: their lines of the receipt, with the configurations and with each other."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from torl.run.config import FinetuneConfig, LearningConfig
from torl.run.records.files import CONFIG_FILE
from torl.run.records.receipt import CHECKPOINTS, RECEIPT_FILE, earlier_configs
from torl.run.records.run_directory import read_first_steps, setting_of
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory

Line = Mapping[str, Any]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_file(value: Any) -> bool:
    return _has(value, {"bytes": _is_count, "sha256": _is_hash})


def _is_source(value: Any) -> bool:
    kinds = {"rows": _is_count, "sha256": _is_hash, "ended": lambda each: isinstance(each, bool)}
    return isinstance(value, dict) and _has({name: each for name, each in value.items() if name != "setting"}, kinds)


def _has(value: Any, kinds: Mapping[str, Callable[[Any], bool]]) -> bool:
    return isinstance(value, dict) and value.keys() == kinds.keys() and all(kinds[name](value[name]) for name in kinds)


def _all_are(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


FIELDS: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        "event": lambda value: value == "start",
        "number": _is_count,
        "step": _is_count,
        "files": _all_are(_is_file),
        "previous": _is_hash,
        "hash": _is_hash,
        "torl": _is_text,
        "python": _is_text,
        "packages": _all_are(_is_text),
        "learner_threads": lambda value: _is_count(value) and value > 0,
        "sources": _all_are(_is_source),
    }
)
"""The entries of a start, and whether a value is possible."""
OF_A_RESUME: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType({"removed": _is_hash, "replaces": _is_file})
"""Further entries of a start that found an earlier one."""


def check_starts(check: Check, history: RunHistory) -> None:
    """Check the lines of all starts, and that each configuration is that of the starts from its first step on."""
    for path, first in read_first_steps(history.directory):
        check.add(first is not None, f"{path.name}: expected the first step that it applies to in its first line")
    if not history.receipt:
        return  # a mismatch of the receipt, or of a run that is being started
    starts = [line for line in history.receipt if line["event"] == "start"]
    check.expect(f"{RECEIPT_FILE}, event of the first line", "start", history.receipt[0]["event"])
    wrong = check.wrong
    for line in starts:
        _check_fields(check, line, first=line is history.receipt[0])
    if check.wrong > wrong:
        return  # the values cannot be compared
    with check.reading(RECEIPT_FILE):
        for line, following in zip_longest(history.receipt, history.receipt[1:]):
            if line["event"] == "start" and not _was_killed(line, following):
                _check_settings(check, line, history)
        _check_steps(check, history.receipt)
        for before, after in pairwise(starts):
            _check_following(check, before, after)
        if starts and starts[0]["step"] == 0:  # otherwise, the run has lost the beginning of its receipt
            _check_configs(check, starts, history)


def _place(line: Line) -> str:
    return f"{RECEIPT_FILE}, line {line['number'] + 1}"


def _was_killed(line: Line, following: Line | None) -> bool:
    """Whether a start was killed before it wrote its configuration: the next one has replaced another."""
    return following is not None and following.get("replaces", line["files"][CONFIG_FILE]) != line["files"][CONFIG_FILE]


def _is_new(line: Line) -> bool:
    """Whether a start names the settings of its sources, which earlier versions did not, nor what else they lack."""
    return any("setting" in entry for entry in line["sources"].values())


def _check_fields(check: Check, line: Line, *, first: bool) -> None:
    """Check the names and the kinds of the entries of a start."""
    place, known = _place(line), FIELDS if first else {**FIELDS, **OF_A_RESUME}
    known = {**known, "replaces": OF_A_RESUME["replaces"]}  # a run may have lost its receipt
    for name in sorted(line.keys() | FIELDS.keys()):
        found = f"{line[name]!r:.80}" if name in line else "none"
        expected = "a value of its kind" if name in known else "no value"
        right = name in line and name in known and known[name](line[name])
        check.add(right, f"{place}, {name}: expected {expected}, found {found}")
    configs = {CONFIG_FILE, *(f"config.{number}.toml" for number in range(1, earlier_configs(line) + 1))}
    missing = sorted(configs - line["files"].keys())
    others = sorted(name for name in line["files"].keys() - configs if not PurePath(name).match(CHECKPOINTS))
    check.expect(f"{place}, files", ([], []), (missing, others))


def _check_settings(check: Check, line: Line, history: RunHistory) -> None:
    """Check the entries of a start that its configuration determines."""
    place, count = _place(line), earlier_configs(line) + 1
    if count > len(history.configs):
        check.add(False, f"{place}: expected at most {len(history.configs)} configurations, found {count}")
        return
    config, sources = history.configs[count - 1][1], line["sources"]
    check.add(line["step"] <= config.total_steps, f"{place}, step: expected at most {config.total_steps} (run.steps)")
    if config.learner.cpu_threads is not None:
        check.expect(f"{place}, learner_threads", config.learner.cpu_threads, line["learner_threads"])
    names = _sources_of(config)
    missing = {name for name in names - sources.keys() if _is_new(line) or not name.startswith("data.evaluation.")}
    check.expect(f"{place}, sources", ([], []), (sorted(missing), sorted(sources.keys() - names)))
    for name, entry in sources.items():
        if "setting" in entry:
            check.expect(f"{name}, which the start of {place} has read", entry["setting"], setting_of(config, name))
        most = config.evaluation.max_problems if name.startswith("data.evaluation.") else None
        right = most is None or entry["rows"] == most or (entry["ended"] and entry["rows"] < most)
        check.add(right, f"{name}, rows that the start of {place} has read: expected {most}, found {entry['rows']}")


def _sources_of(config: LearningConfig) -> set[str]:
    """Return the settings that name a source of problems or examples."""
    own = {"data.train"}
    if isinstance(config, FinetuneConfig):
        own = {"finetune.train", *(["finetune.validation"] if config.finetune.validation is not None else [])}
    return own | {f"data.evaluation.{name}" for name in config.data.evaluation}


def _check_steps(check: Check, lines: Sequence[Line]) -> None:
    """Check that the lines before a start are those of earlier steps, and that only the last one is the end."""
    for before, after in pairwise(lines):
        least = before["step"] + 1 if after["event"] == "start" and before["event"] != "start" else before["step"]
        check.add(after["step"] >= least, f"{_place(after)}: expected at least step {least}, found {after['step']}")
        if before["event"] == "start":
            most = before["step"]
            check.add(after["step"] <= most, f"{_place(after)}: expected step {most}, found {after['step']}")
    for line in lines:
        last = line is lines[-1] and line["event"] == "end"
        check.add(last or line["event"] in ("start", "row"), f"{_place(line)}: expected no event {line['event']!r}")


def _check_following(check: Check, before: Line, after: Line) -> None:
    """Check that a start has kept or replaced the configuration of the start before it, if that is in the receipt."""
    earlier, copies = earlier_configs(before), earlier_configs(after)
    check.add(copies >= earlier, f"{_place(after)}: expected the configurations of {_place(before)}")
    replaced = after.get("replaces")
    if replaced is None:
        check.add(not _is_new(after), f"{_place(after)}: expected the configuration that it replaces, found none")
        return
    if copies > earlier:
        check.expect(f"{_place(after)}, config.{copies}.toml", replaced, after["files"][f"config.{copies}.toml"])
    if "removed" not in after:
        known = [before["files"][CONFIG_FILE], before.get("replaces")]
        check.add(replaced in known, f"{_place(after)}, replaces: expected the configuration of {_place(before)}")


def _check_configs(check: Check, starts: Sequence[Line], history: RunHistory) -> None:
    """Check that each configuration begins with its first start, unless later ones apply to all of its steps."""
    for place, (first, _) in enumerate(history.configs):
        name = f"config.{place + 1}.toml" if place + 1 < len(history.configs) else CONFIG_FILE
        own = [line["step"] for line in starts if earlier_configs(line) == place]
        if own:
            check.expect(f"{name}, first step", own[0], first)
        elif all(later > first for later, _ in history.configs[place + 1 :]):
            check.add(False, f"{name}: expected a start of the receipt with this configuration, found none")
