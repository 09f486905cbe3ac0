"""No field of a problem that would change its prompt is dropped silently, in any layout of problem files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from example_forms import EMPTY, FIELDS, model
from torl.base.errors import DataError
from torl.base.types import Problem
from torl.components.data import load_problems
from torl.components.data.layout import Layout
from torl.components.text.prompts import encode_prompts
from torl.components.text.templates import chatml

SCHEMA = [{"name": "weather", "parameters": {"type": "object"}}]
LAYOUTS: Mapping[str, dict[str, Any]] = {
    "problem and answer": {"problem": "1 + 1?", "answer": "2"},
    "question and answer": {"question": "1 + 1?", "answer": "2"},
    "verl": {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 1, "split": "train", "need_tools_kwargs": True, "interaction_kwargs": {"name": "x"}},
        "agent_name": "tool_agent",
    },
}
LINE_ENDS = ("\u2028", "\u2029", "\u0085")
CHANGING = ("system", "system_prompt", "tools", "functions", "history", "images", "video", "audios", "prefix")


def read(row: Mapping[str, Any], **options: Any) -> Problem:
    problem = Layout(**options).read("p.jsonl, line 1", row)
    assert problem is not None
    return problem


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("field", FIELDS)
def test_field_that_changes_the_prompt_is_refused_and_another_is_metadata(layout: str, field: str) -> None:
    row = {**LAYOUTS[layout], field: FIELDS[field]}
    if field in (*CHANGING, "chat_template_kwargs"):
        with pytest.raises(
            DataError, match=f"line 1: '{field}' would change the prompt and is not read, .*; keep names"
        ):
            read(row)
        assert field not in read(row, keep=("ability",)).metadata
        assert read(row, keep=(field,)).metadata == {field: FIELDS[field]}
    else:
        assert read(row).metadata[field] == FIELDS[field]
    for value in EMPTY:
        assert read({**LAYOUTS[layout], field: value}).question == "1 + 1?"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nulls_of_other_layouts_are_absent(layout: str, tmp_path: Path) -> None:
    """A parquet file has the columns of all its rows."""
    rows = [*LAYOUTS.values()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, _schema(rows)), tmp_path / "p.parquet")
    problems = load_problems(tmp_path / "p.parquet")
    assert [(problem.question, problem.answer) for problem in problems] == [("1 + 1?", "2")] * 3


def _schema(rows: list[dict[str, Any]]) -> pyarrow.Schema:
    return pyarrow.unify_schemas([pyarrow.Table.from_pylist([row]).schema for row in rows])


@pytest.mark.parametrize(
    "system",
    [
        "Please reason step by step, and put your final answer within \\boxed{}.",
        "Please integrate natural language reasoning with programs to solve the problem above, and put your final "
        "answer within \\boxed{}.",
        "Let's think step by step and output the final answer within \\boxed{}.",
        "",
        None,
    ],
)
def test_system_message_of_known_instructions_is_removed(system: str | None) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "1 + 1?"}]
    assert read({**LAYOUTS["verl"], "prompt": messages}).question == "1 + 1?"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"system": "Answer in French."}, "the system message of 'prompt' is not read, .*: 'Answer in French.'"),
        ({"system": ["Answer."]}, "the system message of 'prompt' is not read"),
        ({"images": ["a.png"]}, r"prompt\[1\]: 'images' would change the prompt"),
        ({"tools": SCHEMA}, r"prompt\[1\]: 'tools' would change the prompt"),
    ],
)
def test_message_of_verl_that_is_not_read_is_refused_and_counted(
    more: dict[str, Any], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {name: value for name, value in more.items() if name != "system"}
    messages = [{"role": "system", "content": more.get("system")}, {"role": "user", "content": "1 + 1?", **fields}]
    rows = [{**LAYOUTS["verl"], "prompt": messages}] + [
        {**LAYOUTS["verl"], "extra_info": {"index": number}} for number in range(150)
    ]
    with pytest.raises(DataError, match=message):
        read(rows[0])
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(load_problems(tmp_path / "p.jsonl")) == 150
    assert re.search(r"dropped 1 of 151 rows \(1 (system message|unread field)\): line 1", caplog.text)
    columns = {"problem": "prompt.1.content", "answer": "reward_model.ground_truth"}
    assert read(rows[0], columns=columns).question == "1 + 1?"
    messages[1]["content"] += "\n\nPresent the answer in LaTex format: \\boxed{Your answer}"  # Eurus-2
    assert read(rows[0], columns=columns).question == "1 + 1?"


def test_metadata_that_the_template_does_not_read_is_reported() -> None:
    problems = [Problem("a", "1 + 1?", "2", {"level": 3, "source": "x"}), Problem("b", "2?", "2", {"level": None})]
    tokenizer = model()[1].tokenizer
    prompts = encode_prompts(problems, tokenizer, chatml, 100)
    assert str(prompts.fields) in (
        "1 row has fields that are not read: level (1 row), source (1 row)",
        "1 row has fields that are not read: source (1 row), level (1 row)",
    )
    assert prompts.prompts[0].problem is problems[0]

    def leveled(problem: Problem) -> str:
        return f"{problem.question} Level {problem.metadata.get('level')}."

    assert encode_prompts(problems, tokenizer, leveled, 100).fields.counts == {"source": 1}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_line_separators_of_unicode_do_not_divide_a_row(suffix: str, tmp_path: Path) -> None:
    rows = [{"problem": f"Read {number}{mark}again?", "answer": "2"} for number in range(10) for mark in LINE_ENDS]
    path = tmp_path / f"p{suffix}"
    if suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) if suffix == ".jsonl" else f"[{','.join(lines)}]")
    assert [problem.question for problem in load_problems(path)] == [row["problem"] for row in rows]
