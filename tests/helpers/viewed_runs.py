"""Directories of runs for tests of the viewer: any rows in the files that torl writes."""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from builders import asked, call, failed, grade, printed, trajectory
from torl.base.types import FinishReason
from torl.run.records.rows import TrajectoryRecord, encode_row, encode_trajectory
from torl_lab.view.columns import IndexReader
from torl_lab.view.indexing import Indexer
from torl_lab.view.sources import Target

CALLING = "Let me see.\n```python\nprint(1)\n```\n```output"


def row(step: int = 0, sample: int = 0, problem: str = "p", **changes: Any) -> dict[str, Any]:
    """The row of a response with one successful call and a right answer, with changed members."""
    played = trajectory(
        CALLING,
        "So \\boxed{1}.",
        prompt=asked(problem),
        calls=[call("print(1)\n")],
        group=f"{step}/{problem}",
        sample=sample,
        version=step,
    )
    return encode_trajectory(TrajectoryRecord(step, played, grade(answer="1"), 0.5)) | changes


def varied(step: int, sample: int, number: int) -> dict[str, Any]:
    """One of many different rows: right or wrong, without calls or with failed ones, in the batch or outside."""
    calls = [
        call("1/0", failed()) if (number + each) % 3 else call("print(2)", printed("2\n")) for each in range(number % 4)
    ]
    turns = [f"word{number} ```python\n1\n```\n```output"] * len(calls)
    played = trajectory(
        *turns,
        f"the end of number{number % 7} \\boxed{{{number}}}",
        prompt=asked(f"p{number % 5}", question=f"Question {number % 5}?"),
        calls=calls,
        group=f"{step}/p{number % 5}",
        sample=sample,
        turn_tokens=1 + number % 6,
        version=max(0, step - number % 2),
        finish=FinishReason.LENGTH if number % 11 == 0 else FinishReason.STOP,
    )
    advantage = None if number % 6 == 0 else (number % 5 - 2) / 2
    graded = grade(number % 2 == 0, turn_rewards=[0.25] * len(played.turns) if number % 7 == 0 else ())
    return encode_trajectory(TrajectoryRecord(step, played, graded, advantage))


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The rows as lines of a file."""
    return b"".join(map(encode_row, rows))


def write_run(directory: Path, files: Mapping[str, Iterable[Mapping[str, Any]]], steps: int = 2) -> Path:
    """Write a run with these files of trajectories, by name without the suffix."""
    (directory / "trajectories").mkdir(parents=True)
    (directory / "config.toml").write_text("[run]\nsteps = 9\n[model]\npath = 'nowhere/none'\n", encoding="utf-8")
    metrics = [
        {"step": step, "time": 1.0 + step, "time/step": 1.0, "reward/accuracy": step / 10} for step in range(steps)
    ]
    text = "".join(json.dumps(each) + "\n" for each in metrics)
    (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
    for name, rows in files.items():
        (directory / "trajectories" / f"{name}.jsonl").write_bytes(lines(rows))
    return directory


def indexed(directory: Path, label: str = "run") -> IndexReader:
    """A reader of the index of a run, which is brought up to date, with the texts of tokens if they are known."""
    target = Target(label, directory)
    path = target.index_path(None)
    with closing(Indexer(target, path)) as indexer:
        indexer.update()
        indexer.store_vocabulary()
    reader = IndexReader(target, path)
    reader.refresh()
    return reader
