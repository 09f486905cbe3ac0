"""The audit of a run's starts and of the order of its rows: every entry with every kind of wrong value is found."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torl.base.errors import RecordError
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.content import canonical_json
from torl.run.records.receipt import FIRST, RECEIPT_FILE, end_receipt, file_entry, line_hash, read_receipt
from torl.run.records.run_directory import config_files, setting_of
from torl.run.records.writers import RunWriter
from torl.training.components import start_facts
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.receipt_records import check_records
from torl_lab.audit.starts import FIELDS, OF_A_RESUME, check_starts

Line = dict[str, Any]
STEPS = 4
SOURCE = {"rows": 3, "sha256": "1" * 64, "ended": True}


def config_of(directory: Path, **settings: Any) -> TrainConfig:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    options = {"run.directory": "runs/starts", "run.steps": STEPS, "learner.cpu_threads": 2}
    return load_config(TrainConfig, find_config("demo"), {**options, **named})


def started(directory: Path, config: TrainConfig, resume_step: int | None) -> RunWriter:
    sources = {
        name: {**SOURCE, "setting": setting_of(config, name)} for name in ("data.train", "data.evaluation.heldout")
    }
    return RunWriter(
        directory,
        resume_step=resume_step,
        facts={**start_facts(config), "sources": sources},
        configs=config_files(directory, config, resume_step or 0),
    )


def play(writer: RunWriter, first: int, stop: int) -> None:
    with writer:
        for step in range(first, stop):
            if step == 0:
                writer.write_metrics(step, {"time/evaluation": 1.0})
            writer.write_metrics(step, {"time/step": 1.0})
            if step + 1 < STEPS:
                writer.write_metrics(step + 1, {"time/checkpoint": 1.0})
        if stop == STEPS:
            writer.write_metrics(stop, {"time/evaluation": 1.0})
            writer.write_metrics(stop, {"time/checkpoint": 1.0})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with three starts: from step 0, killed and resumed at 1, and with other settings at 2."""
    run = tmp_path_factory.mktemp("starts") / "run"
    run.mkdir()
    play(started(run, config_of(run), None), 0, 3)
    play(started(run, config_of(run, run__resume=True), 1), 1, 3)
    play(started(run, config_of(run, run__resume=True, checkpoint__keep_last=3), 2), 2, STEPS)
    (run / "summary.json").write_text("{}\n")
    end_receipt(run, STEPS)
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def found(run: Path) -> list[str]:
    """The mismatches of the starts, of the receipt and of the order of rows."""
    metrics, receipt, starts = Check("metrics"), Check("receipt"), Check("receipt")
    history = RunHistory.read(run, metrics)
    check_records(receipt, run, hash_checkpoints=False)
    check_starts(starts, history)
    return [example for check in (metrics, receipt, starts) for example in check.examples]


def chain(run: Path, lines: list[Line]) -> None:
    """Write lines as a chain, as a forger does."""
    previous = FIRST
    for number, line in enumerate(lines):
        line |= {"number": number, "previous": previous}
        line["hash"] = previous = line_hash(line)
    (run / RECEIPT_FILE).write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))


def seal_rows(run: Path) -> None:
    """Chain the receipt again, with the rows that the metrics have now, in their order, and the files as they are."""
    lines, rows = read_receipt(run), (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    starts = [line for line in lines if line["event"] == "start"]
    chained: list[Line] = []
    for row in rows:
        step = json.loads(row).get("step")
        while starts and (not chained or step == starts[0]["step"]):
            chained.append(starts.pop(0))
        chained.append({"event": "row", "step": step, "files": {}, "row": hashlib.sha256(row).hexdigest()})
    chained += [line for line in lines if line["event"] == "end"]
    for line in chained:
        line["files"] = {name: file_entry(run / name) for name in line["files"]}
    chain(run, chained)


def test_honest_starts_and_rows_are_accepted(run: Path) -> None:
    assert [(line["event"], line["step"]) for line in read_receipt(run) if line["event"] == "start"] == [
        ("start", 0),
        ("start", 1),
        ("start", 2),
    ]
    assert found(run) == []


ABSENT = object()
WRONG: list[Any] = [None, True, -1, 0.5, 10**6, "", "x", "F" * 64, [], ["x"], {}, {"x": 1}, {"x": {"sha256": "x"}}]
CHAINED = ("number", "previous", "hash")
"""Entries that the chain determines."""


UNDETERMINED: dict[str, dict[int | None, list[Any]]] = {
    "torl": {None: ["x", "F" * 64]},
    "python": {None: ["x", "F" * 64]},
    "packages": {None: [{}]},
    "removed": {1: [ABSENT], 2: [ABSENT]},
}
"""Possible values of entries that nothing else in a run determines, by the start; None stands for all."""


@pytest.mark.parametrize("name", [*FIELDS, *OF_A_RESUME, "new"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_wrong_value_of_each_entry_of_each_start_is_a_mismatch(name: str, start: int, run: Path) -> None:
    whole, history = read_receipt(run), RunHistory.read(run, Check("metrics"))
    place = [line["number"] for line in whole if line["event"] == "start"][start]
    passed = []
    for value in [*WRONG, ABSENT]:
        lines = read_receipt_again(whole)
        if value == lines[place].get(name, ABSENT):
            continue
        lines[place].pop(name, None)
        if value is not ABSENT:
            lines[place][name] = value
        (run / RECEIPT_FILE).write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
        check = Check("receipt")
        try:
            check_starts(check, replace(history, receipt=read_receipt(run)))
        except RecordError:
            continue
        if name in CHAINED:
            check_records(check, run, hash_checkpoints=False)
        if not check.wrong:
            passed.append(value)
    assert passed == UNDETERMINED.get(name, {}).get(start, UNDETERMINED.get(name, {}).get(None, []))


def read_receipt_again(lines: list[Line]) -> list[Line]:
    copied: list[Line] = json.loads(json.dumps(lines))
    return copied


SOURCES: dict[str, Callable[[Line], object]] = {
    "another file": lambda sources: sources["data.evaluation.heldout"].update(setting={"name": "file", "path": "x"}),
    "no evaluation set": lambda sources: sources.pop("data.evaluation.heldout"),
    "no training set": lambda sources: sources.pop("data.train"),
    "unknown set": lambda sources: sources.update({"data.evaluation.aime": SOURCE}),
    "negative rows": lambda sources: sources["data.train"].update(rows=-1),
    "hash": lambda sources: sources["data.train"].update(sha256="x"),
    "end": lambda sources: sources["data.train"].update(ended=1),
    "more": lambda sources: sources["data.train"].update(more=1),
}


@pytest.mark.parametrize("name", SOURCES)
def test_wrong_source_of_a_start_is_a_mismatch(name: str, run: Path) -> None:
    lines = read_receipt(run)
    SOURCES[name](next(line for line in reversed(lines) if line["event"] == "start")["sources"])
    chain(run, lines)
    assert found(run)


@pytest.mark.parametrize("name", ["config.1.toml", "config.toml"])
@pytest.mark.parametrize("first", ["-1", "x", "", "1", "3", "00", "0.0", "1e9", str(10**30), "0 ", "\uff12"])
def test_wrong_first_step_of_a_configuration_is_a_mismatch(name: str, first: str, run: Path) -> None:
    path = run / name
    _, rest = path.read_text().split("\n", 1)
    path.write_text(f"# The configuration from step {first} on.\n{rest}")
    seal_rows(run)
    assert found(run)


@pytest.mark.parametrize("line", ["", "# The configuration.\n", "# The configuration from step 0 on. \n"])
def test_configuration_without_its_first_line_is_a_mismatch(line: str, run: Path) -> None:
    _, rest = (run / "config.1.toml").read_text().split("\n", 1)
    (run / "config.1.toml").write_text(f"{line}{rest}")
    seal_rows(run)
    assert any("config.1.toml: expected the first step that it applies to" in each for each in found(run))


@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize("listed", [False, True], ids=["not in the receipt", "in the receipt"])
def test_invented_later_start_is_a_mismatch(step: int, listed: bool, run: Path) -> None:
    """It has another number of kept checkpoints, for which the run may lack some."""
    shutil.copyfile(run / "config.toml", run / "config.2.toml")
    _, rest = (run / "config.toml").read_text().split("\n", 1)
    assert "keep_last = 3\n" in rest
    (run / "config.toml").write_text(
        f"# The configuration from step {step} on.\n{rest.replace('keep_last = 3', 'keep_last = 1')}"
    )
    lines = read_receipt(run)
    if listed:
        last = [line for line in lines if line["event"] == "start"][-1]
        last["files"] |= {"config.2.toml": {}}
    chain(run, lines)
    seal_rows(run)
    assert found(run)


ORDERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "reversed": lambda rows: rows[::-1],
    "first two swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "last two swapped": lambda rows: [*rows[:-2], rows[-1], rows[-2]],
    "rotated": lambda rows: [*rows[1:], rows[0]],
    "last twice": lambda rows: [*rows, rows[-1]],
    "first twice": lambda rows: [rows[0], *rows],
    "all twice": lambda rows: [*rows, *rows],
} | {
    f"row {number} removed to the end": lambda rows, number=number: [*rows[:number], *rows[number + 1 :], rows[number]]
    for number in range(7)
}


@pytest.mark.parametrize("name", ORDERS)
def test_other_order_of_the_metrics_is_a_mismatch(name: str, run: Path) -> None:
    path = run / "metrics.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(ORDERS[name](rows)))
    seal_rows(run)
    metrics = Check("metrics")
    RunHistory.read(run, metrics)
    assert metrics.wrong
    assert all("rows in the order of the run, each once" in each or "found two" in each for each in metrics.examples)
