"""The data of `demo.py`: written solutions for the warm start, held-out problems, and samples to imitate."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from demo_maker.documents import CLOSINGS, CODE_OPENINGS, program_code
from demo_maker.operations import SOURCES, STEPS
from demo_maker.problems import Program, draw_program, problem_set
from demo_maker.rewording import reword
from torl.base.paths import resolve_path
from torl.base.types import OutcomeStatus
from torl.run.records.files import atomic_write
from torl.run.records.reading import read_rows
from torl.run.records.rows import encode_row

SYSTEM = "Solve with Python. Put the final answer in \\boxed{}."
OPERATIONS = [operation.name for operation in (*SOURCES, *STEPS)]
PROBLEMS: Mapping[str, int] = {"heldout": 64, "reworded": 32, "seen": 32}
_SHIPPED = resolve_path("torl:demo/problems")
_REWORDING_SEED = 7


def write_problems(directory: Path) -> dict[str, Path]:
    """Write the evaluation sets, and return their files by name.

    `heldout` and `seen` are the first problems of the demo's files, `reworded` the first held-out ones in other words.
    """
    random = Random(_REWORDING_SEED)
    reworded = (
        {"id": f"reworded-{index:04d}", "problem": reword(program, random), "answer": str(program.values[-1])}
        for index, program in enumerate(problem_set().heldout)
    )
    sources: Mapping[str, Iterable[Mapping[str, Any]]] = {
        "heldout": read_rows(_SHIPPED / "heldout.jsonl"),
        "reworded": reworded,
        "seen": read_rows(_SHIPPED / "seen.jsonl"),
    }
    files = {name: directory / f"{name}.jsonl" for name in PROBLEMS}
    for name, file in files.items():
        write_rows(file, islice(sources[name], PROBLEMS[name]))
    return files


def examples(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield written solutions of single operations, with the code's result between two trained parts.

    Pairs are left to reinforcement learning.
    """
    random = Random(seed)
    is_evaluated, seen = problem_set().is_evaluated(), set[object]()
    while len(seen) < count:
        program = draw_program(random, (random.choice(OPERATIONS),), easy=random.random() < 1 / 3)
        if program is None or program.key in seen or is_evaluated(program):
            continue
        seen.add(program.key)
        yield {"segments": [{"label": label, "text": text} for label, text in _segments(random, program)]}


def _segments(random: Random, program: Program) -> Iterator[tuple[bool, str]]:
    question = program.question(random)
    yield False, f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
    yield False, "<|im_start|>assistant\n"
    code = program_code(program, frozenset())
    yield True, f"{random.choice(CODE_OPENINGS)}```python\n{code}\n```\n```output"
    yield False, f"\n{program.values[-1]}\n```\n"
    yield True, f"{random.choice(CLOSINGS).format(program.values[-1])}<|im_end|>"


def keep_executed(samples: Path, kept: Path) -> None:
    """Write the sampled trajectories with a correct answer and code that ran without an error.

    Raises:
        RecordError: The samples cannot be read, or `kept` cannot be written.
    """
    rows = (row for row in read_rows(samples) if row["correct"])
    write_rows(kept, (row for row in rows if any(call["status"] == OutcomeStatus.OK for call in row["tool_calls"])))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of JSON atomically, so that a killed command leaves no part of a file.

    Raises:
        RecordError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for row in rows:
            file.write(encode_row(row))
