"""The commands at the top of docs/from-data-to-table.md, as they stand, with local files for the public sets.

Each public set is a file in its published shape, made from the demo's problems. The names of models, presets and sets
are replaced, and options that make the commands short are appended; all else is the page's.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from torl.base.paths import resolve_path

PAGE = Path(__file__).parents[2] / "docs" / "from-data-to-table.md"
MODEL = "torl:demo/base_model"
SHORTER: Mapping[str, Sequence[str]] = {
    "sources": (),
    "prepare": ("--similarity-threshold", "0.95"),  # the demo's problems are a few sentences with other numbers
    "difficulty": ("--samples", "8", "--sample.max_problems", "48"),
    "select": ("--difficulty-bins", "2"),
    "train": ("--run.directory", "runs/torl_7b", "--run.steps", "1", "--evaluation.max_problems", "4"),
    "evaluate": ("--evaluation.max_problems", "16"),
}
Row = dict[str, Any]
SHAPES: Mapping[str, Callable[[Row], Row]] = {
    "numina_math": lambda row: {
        "source": "olympiads",
        "problem": row["problem"],
        "solution": f"So it is $\\boxed{{{row['answer']}}}$.",
        "messages": [],
    },
    "math": lambda row: {
        "problem": row["problem"],
        "level": "Level 3",
        "type": "Algebra",
        "solution": f"Hence $\\boxed{{{row['answer']}}}$.",
    },
    "deepscaler": lambda row: {"problem": row["problem"], "answer": row["answer"], "solution": ""},
}
EVALUATED: Mapping[str, Callable[[Row], Row]] = {
    "aime24": lambda row: {"ID": row["id"], "Problem": row["problem"], "Solution": "", "Answer": int(row["answer"])},
    "aime25": lambda row: {"problem": row["problem"], "answer": row["answer"]},
    "math500": lambda row: {
        "problem": row["problem"],
        "solution": "",
        "answer": row["answer"],
        "subject": "Algebra",
        "level": 2,
        "unique_id": row["id"],
    },
}


def commands() -> list[list[str]]:
    """The words of each command of the page's first console block."""
    block = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]


def demo_problems(name: str) -> list[Row]:
    path = resolve_path(f"torl:demo/problems/{name}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, rows: Sequence[Row]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.slow(reason="samples, trains and evaluates a model, in about three minutes")
def test_commands_of_the_page_make_the_table(tmp_path: Path) -> None:
    problems, heldout = demo_problems("train"), demo_problems("heldout")
    names = {
        name: f"{name}={write(tmp_path / f'{name}.jsonl', [shape(row) for row in rows[part::3]])}"
        for shapes, rows in ((SHAPES, problems), (EVALUATED, heldout[:96]))
        for part, (name, shape) in enumerate(shapes.items())
    }
    names |= {"MODEL": MODEL, "base=MODEL": f"base={MODEL}", "torl_7b": "demo", "28740": "24"}
    suite = [names["aime24"], names["math500"]]
    found = commands()
    assert [words[1] if words[1] != "data" else words[2] for words in found] == list(SHORTER)
    for words in found:
        arguments = [names.get(word, word) for word in words[1:]]
        if "--suite" in words:
            place = arguments.index("--suite") + 1
            arguments[place : place + 1] = suite
        command = [sys.executable, "-m", "torl", *arguments, *SHORTER[words[2] if words[1] == "data" else words[1]]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr[-2000:]}"
    results = json.loads((tmp_path / "runs/table/results.json").read_text(encoding="utf-8"))
    played = {(row["model"], row["max_tool_calls"]) for row in results["accuracy"]}
    assert played == {("torl_7b", 0), ("torl_7b", 1), ("base", 0), ("base", 1)}  # trained, untrained, without the tool
    assert {(row["model"], row["max_tool_calls"]) for row in results["baseline_difference"]} == {
        ("torl_7b", 0),
        ("torl_7b", 1),
    }
    table = (tmp_path / "runs/table/table.md").read_text(encoding="utf-8")
    assert "| ToRL-7B (paper) |" in table
    assert "Use of code in responses" in table
