"""Rows of examples in the public formats."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from torl.base.errors import DataError
from torl.components.data.example_files import example_rows
from torl.components.data.examples import (
    Dialogue,
    Passages,
    PromptCompletion,
    RecordedTrajectory,
    SolvedProblem,
    read_example,
)

CALL = {"type": "function", "function": {"name": "python", "arguments": {"code": "print(2)"}}}
SCHEMA = {"name": "python", "parameters": {"type": "object", "properties": {"code": {"type": "string"}}}}


def test_openai_messages_are_read_with_their_tools() -> None:
    row = {
        "messages": [
            {"role": "developer", "content": "Use Python.", "name": None},
            {"role": "user", "content": [{"type": "text", "text": "1 + "}, {"type": "text", "text": "1?"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "function": {"name": "python", "arguments": '{"code": "print(2)"}'}, "extra": 1}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "assistant", "content": "2", "reasoning_content": "Easy.", "weight": 0},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes.", "weight": 0.5},
        ],
        "tools": json.dumps([SCHEMA]),
    }
    content = read_example("x", row)
    assert isinstance(content, Dialogue)
    assert content.weights == (0, 0, 1, 0, 0, 0, 0.5)
    assert content.tools == ({"type": "function", "function": SCHEMA},)
    assert content.messages[:4] == (
        {"role": "system", "content": "Use Python."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", **CALL}]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    )
    assert content.messages[4] == {"role": "assistant", "content": "2", "reasoning_content": "Easy."}


def test_sharegpt_conversations_are_read_with_calls_and_results() -> None:
    """LLaMA-Factory's `function_call` and `observation`, and Hermes' results with their tags."""
    row = {
        "system": "Use Python.",
        "tools": [{"type": "function", "function": SCHEMA}],
        "conversations": [
            {"from": "human", "value": "1 + 1?"},
            {"from": "function_call", "value": '{"name": "python", "arguments": {"code": "print(2)"}}'},
            {"from": "observation", "value": "2"},
            {"from": "gpt", "value": "<tool_call>\n{}\n</tool_call>"},
            {"from": "tool", "value": "<tool_response>\n3\n</tool_response>"},
            {"from": "gpt", "value": "3"},
        ],
    }
    content = read_example("x", row)
    assert isinstance(content, Dialogue)
    assert [(message["role"], message["content"]) for message in content.messages] == [
        ("system", "Use Python."),
        ("user", "1 + 1?"),
        ("assistant", ""),
        ("tool", "2"),
        ("assistant", "<tool_call>\n{}\n</tool_call>"),
        ("tool", "3"),
        ("assistant", "3"),
    ]
    assert content.messages[2]["tool_calls"] == [CALL]
    assert content.weights == (0, 0, 1, 0, 1, 0, 1)


def test_results_of_parallel_calls_are_messages_of_their_own() -> None:
    """The chat template puts tags around each, as in a rollout; other text stays as it is."""
    wrapped = "<tool_response>\n1\n</tool_response>"
    for value, results in (
        (f"{wrapped}\n<tool_response>\n{{}}\n</tool_response>\n", ["1", "{}"]),
        (f"{wrapped} and", [f"{wrapped} and"]),
        (f"<tool_response>{wrapped}", [f"<tool_response>{wrapped}"]),
        ("<tool_response>a</tool_response> b</tool_response>", ["<tool_response>a</tool_response> b</tool_response>"]),
        ("", [""]),
    ):
        turns = [{"from": "human", "value": "?"}, {"from": "tool", "value": value}, {"from": "gpt", "value": "3"}]
        content = read_example("x", {"conversations": turns})
        assert isinstance(content, Dialogue)
        assert [message["content"] for message in content.messages if message["role"] == "tool"] == results


def test_empty_messages_of_the_model_are_not_trained() -> None:
    asked = {"role": "user", "content": "1 + 1?"}
    for message, weight in (
        ({"content": ""}, 0),
        ({"content": " \n"}, 0),
        ({"content": None}, 0),
        ({"content": None, "tool_calls": [{"name": "f", "arguments": {}}]}, 1),
        ({"content": "", "reasoning_content": "Easy."}, 1),
    ):
        content = read_example("x", {"messages": [asked, {"role": "assistant", **message}]})
        assert isinstance(content, Dialogue)
        assert content.weights == (0, weight)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [('"{\\"a\\": 1}"', {"a": 1}), ("null", {}), ('"null"', {}), ("", {}), (None, {}), ({"a": None}, {"a": None})],
)
def test_arguments_of_calls_are_objects(arguments: Any, read: dict[str, Any]) -> None:
    call = {"name": "f", "arguments": arguments}
    content = read_example("x", {"messages": [{"role": "assistant", "tool_calls": [call]}]})
    assert isinstance(content, Dialogue)
    assert content.messages[0]["tool_calls"][0]["function"]["arguments"] == read


def test_thinking_before_a_call_and_results_that_are_objects_are_kept() -> None:
    """As LLaMA-Factory's converters write them."""
    turns = [
        {"from": "human", "value": "1 + 1?"},
        {"from": "function_call", "value": '<think>\nAdd.\n</think>\n\n{"name": "f", "arguments": {"a": 1}}'},
        {"from": "observation", "value": {"sum": 2}},
        {"from": "gpt", "value": "2"},
    ]
    content = read_example("x", {"conversations": turns})
    assert isinstance(content, Dialogue)
    assert [message["content"] for message in content.messages[1:3]] == ["<think>\nAdd.\n</think>", '{"sum": 2}']
    assert content.messages[1]["tool_calls"][0]["function"]["name"] == "f"


def test_end_of_thinking_in_the_code_of_a_call_is_code() -> None:
    written = json.dumps({"name": "f", "arguments": {"code": "print('</think>')"}})
    content = read_example("x", {"conversations": [{"from": "function_call", "value": written}]})
    assert isinstance(content, Dialogue)
    assert content.messages[0]["content"] == ""
    assert content.messages[0]["tool_calls"][0]["function"]["arguments"] == {"code": "print('</think>')"}


def test_messages_may_lack_content_where_it_can_be_empty() -> None:
    messages = [{"role": "assistant", "thinking": "Hm."}, {"role": "tool", "name": "f"}]
    content = read_example("x", {"messages": messages, "functions": " "})
    assert isinstance(content, Dialogue)
    assert [message["content"] for message in content.messages] == ["", ""]
    assert content.tools == ()


def test_user_message_equal_to_the_system_message_is_another_message() -> None:
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hi"}]
    content = read_example("x", {"system": "Hi", "conversations": turns})
    assert isinstance(content, Dialogue)
    assert [message["role"] for message in content.messages] == ["system", "user", "assistant"]


def test_system_message_and_tools_that_are_given_twice_are_read_once() -> None:
    """Hermes' files have a `tools` column, and a system message that describes the same tools."""
    system = f"You may call: <tools>{json.dumps(SCHEMA)}</tools>"
    turns = [{"from": "system", "value": system}, {"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]
    for first, tools, kept in (
        (system, [SCHEMA], ()),
        (system, [SCHEMA | {"name": "other"}], ("other",)),
        ("<tools>", [SCHEMA], ("python",)),
        ('Write <tools></tools>. Call "python".', [SCHEMA], ("python",)),
        ("Use python.", [SCHEMA], ("python",)),
    ):
        row = {"system": first, "conversations": [{"from": "system", "value": first}, *turns[1:]], "tools": tools}
        content = read_example("x", row)
        assert isinstance(content, Dialogue)
        assert [message["role"] for message in content.messages] == ["system", "user", "assistant"]
        assert tuple(each["function"]["name"] for each in content.tools) == kept


def test_older_name_of_tools_is_read() -> None:
    content = read_example("x", {"messages": [{"role": "user", "content": "?"}], "functions": [SCHEMA], "tools": None})
    assert isinstance(content, Dialogue)
    assert content.tools == ({"type": "function", "function": SCHEMA},)


def test_earlier_turns_of_alpaca_are_messages() -> None:
    row = {"instruction": "And 2?", "input": "", "output": "4", "system": "Square.", "history": [["1?", "1"]]}
    content = read_example("x", row)
    assert isinstance(content, Dialogue)
    assert [(message["role"], message["content"]) for message in content.messages] == [
        ("system", "Square."),
        ("user", "1?"),
        ("assistant", "1"),
        ("user", "And 2?"),
        ("assistant", "4"),
    ]
    assert content.weights == (0, 0, 1, 0, 1)
    for system, history in (("", []), (None, None), ({}, " ")):
        assert isinstance(read_example("x", row | {"system": system, "history": history}), SolvedProblem)


def test_completion_alone_is_trained() -> None:
    assert read_example("x", {"prompt": "1 + 1 =", "completion": " 2"}) == PromptCompletion("1 + 1 =", " 2")
    assert read_example("x", {"prompt": "1 + 1 =", "response": " 2"}) == PromptCompletion("1 + 1 =", " 2")
    earlier = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    asked = [*earlier, {"role": "user", "content": "1 + 1?"}]
    for completion in ("2", [{"role": "assistant", "content": "2"}]):
        content = read_example("x", {"prompt": asked, "completion": completion})
        assert isinstance(content, Dialogue)
        assert content.messages == (*asked, {"role": "assistant", "content": "2"})
        assert content.weights == (0, 0, 0, 1)


def test_problems_segments_documents_and_trajectories_are_recognized() -> None:
    solved = read_example("f, line 3", {"question": "1 + 1?", "solution": "$2$", "answer": 2, "level": 1})
    assert isinstance(solved, SolvedProblem)
    assert (solved.problem.id, solved.problem.question, solved.problem.answer) == ("f, line 3", "1 + 1?", "2")
    assert (solved.problem.metadata, solved.response) == ({"level": 1}, "$2$")
    segments = [{"label": False, "text": "a"}, {"label": True, "text": "b"}]
    assert read_example("x", {"segments": segments}) == Passages(("a", "b"), (0, 1))
    assert read_example("x", {"text": "a", "url": "b"}) == Passages(("a",), (1,))
    row = {"prompt_token_ids": [], "token_ids": [], "loss_mask": [], "question": "1?", "text": "a", "response": "b"}
    assert read_example("x", row) == RecordedTrajectory(row)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "a"}, r"line 7: not a known format of examples, by its fields input; expected prompt_token_ids and"),
        ({"inptu": "a"}, r"finetune\.train\.columns names fields that are called otherwise"),
        (
            {"messages": [{"role": "user", "text": "a"}]},
            r"messages\[0\]: 'content' is missing; the columns are: role, text",
        ),
        (
            {"conversations": [{"from": "human", "text": "a"}]},
            r"\[0\]: 'value' is missing; the columns are: from, text",
        ),
        (
            {"conversations": [{"role": "user", "value": "a"}]},
            r"\[0\]: 'content' is missing; the columns are: role, value",
        ),
        ({}, "by its fields none"),
        ({"messages": {}}, "'messages' must be a list of objects, got an object"),
        ({"messages": ["a"]}, r"'messages\[0\]' must be an object, or the JSON of one, got the text 'a'"),
        ({"messages": [{"role": "bot"}]}, r"messages\[0\]: 'role' must be one of system, user, .*, got 'bot'"),
        ({"messages": [{"role": "user", "content": 1}]}, "'content' must be text, or a list of parts"),
        ({"messages": [{"role": "assistant", "content": "", "weight": -1}]}, "'weight' must be a number of at least 0"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "must have a function with a name"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]},
            "'arguments' must be JSON",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[1]"}]}]},
            "the arguments of 'f' must be an object, got a list",
        ),
        ({"instruction": "a", "output": "b", "history": ["c"]}, "'history' must be a list of pairs"),
        ({"instruction": "a", "output": "b", "history": "19th century"}, "'history' must be a list of pairs"),
        ({"messages": [], "functions": "none"}, "'functions' must be JSON"),
        ({"messages": [], "tools": "["}, "'tools' must be JSON"),
        ({"messages": [], "tools": [{"function": {}}]}, "'tools' has a tool without a name"),
        ({"conversations": [{"from": "me", "value": ""}]}, r"conversations\[0\]: 'from' must be one of"),
        ({"prompt": "a", "completion": 1}, "'completion' must be text, got a number"),
        ({"segments": [1]}, "'segments' must be a list of objects with label and text"),
        ({"problem": "a", "response": ["b"]}, "'response' must be text, got a list"),
    ],
)
def test_error_of_a_row_names_its_location_and_field(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_example("a.jsonl, line 7", row)
    assert str(error.value).startswith("a.jsonl, line 7: ")


def test_files_datasets_and_runs_are_sources(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "n": 0.10}\n\n{"text": "b", "n": 12345678901234567890}\n')
    (tmp_path / "run/trajectories").mkdir(parents=True)
    for step in range(2):
        (tmp_path / f"run/trajectories/step_{step:06d}.jsonl").write_text(f'{{"text": "step {step}"}}\n')
    (tmp_path / "run/trajectories/evaluation_000000_heldout.jsonl").write_text('{"text": "held out"}\n')
    rows = list(example_rows((str(tmp_path / "a.jsonl"), str(tmp_path / "run"))))
    assert [row for _, row in rows] == [
        {"text": "a", "n": 0.1},
        {"text": "b", "n": 12345678901234567890},
        {"text": "step 0"},
        {"text": "step 1"},
    ]
    assert [id for id, _ in rows] == [
        "source 1, a.jsonl, line 1",
        "source 1, a.jsonl, line 3",
        "source 2, step_000000.jsonl, row 1",
        "source 2, step_000001.jsonl, row 2",
    ]
    assert next(example_rows(str(tmp_path / "a.jsonl")))[0] == "a.jsonl, line 1"
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"empty\.jsonl: contains no examples"):
        list(example_rows(str(tmp_path / "empty.jsonl")))
    (tmp_path / "list.jsonl").write_text("[]\n")
    ((_, invalid),) = example_rows(str(tmp_path / "list.jsonl"))
    assert isinstance(invalid, DataError)
    assert "line 1: an example must be an object, got a list" in str(invalid)
    (tmp_path / "none/trajectories").mkdir(parents=True)
    with pytest.raises(DataError, match="none: contains no examples"):
        list(example_rows(str(tmp_path / "none")))


def test_configurations_of_a_dataset_are_chosen_by_files(tmp_path: Path) -> None:
    for name in ("all", "math"):
        (tmp_path / "set/data" / name).mkdir(parents=True)
        (tmp_path / "set/data" / name / "train-00000-of-00001.jsonl").write_text(f'{{"text": "{name}"}}\n')
    path = str(tmp_path / "set")
    with pytest.raises(
        DataError, match=r"several configurations or splits: data/all/train\*, data/math/train\*; choose"
    ):
        list(example_rows(path))
    assert list(example_rows(path, files="data/math/*")) == [("train-00000-of-00001.jsonl, line 1", {"text": "math"})]
    assert [id for id, _ in example_rows(path, files="*")] == [
        f"{name}/train-00000-of-00001.jsonl, row {row}" for row, name in enumerate(("all", "math"), start=1)
    ]


def test_columns_are_fields_under_other_names(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text('{"query": {"text": "1 + 1?"}, "answer": "2 #### 2"}\n{"answer": "3"}\n')
    columns = {"problem": "query.text", "response": "answer"}
    (_, first), (_, second) = example_rows(str(path), columns=columns)
    assert isinstance(first, dict)
    content = read_example("x", first)
    assert isinstance(content, SolvedProblem)
    assert (content.problem.question, content.response) == ("1 + 1?", "2 #### 2")
    assert "the column 'query.text' is missing" in str(second)


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ({}, "of messages"),
        ({"response": "generations.0"}, "generated"),
        ({"completion": "generations.0"}, "generated"),
        ({"problem": "text", "solution": "generations.0"}, "generated"),
        ({"tools": "schemas"}, "of messages"),
    ],
)
def test_named_columns_decide_the_format(tmp_path: Path, columns: dict[str, str], read: str) -> None:
    """Generated sets have the columns of several formats."""
    messages = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "of messages"}]
    row = {
        "problem": "1 + 1?",
        "prompt": "1 + 1?",
        "generations": ["generated"],
        "messages": messages,
        "text": "of text",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row | {"schemas": []}))
    ((_, fields),) = example_rows(str(tmp_path / "a.jsonl"), columns=columns)
    assert isinstance(fields, dict)
    content = read_example("x", fields)
    trained = {
        Dialogue: lambda: content.messages[-1]["content"],
        SolvedProblem: lambda: content.response,
        PromptCompletion: lambda: content.completion,
    }
    assert trained[type(content)]() == read


def test_misspelled_field_in_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"problem": "p", "solution": "s", "other": "o"}\n')
    with pytest.raises(DataError, match="'respnse' is not a field of any format of examples; did you mean response"):
        list(example_rows(str(tmp_path / "a.jsonl"), columns={"respnse": "other"}))


def test_nulls_that_parquet_adds_to_objects_are_left_out(tmp_path: Path) -> None:
    """Arrow has one type for all objects of a column: each gets the members of the others."""
    calls = [{"name": "python", "arguments": {"code": "1"}}, {"name": "weather", "arguments": {"city": "Paris"}}]
    result = {"role": "tool", "content": None}
    rows = [
        {"messages": [{"role": "assistant", "tool_calls": [{"function": call}]}, result], "tools": [SCHEMA]}
        for call in calls
    ]
    rows[1]["tools"] = [{"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert "null" in json.dumps(pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist())
    read = [read_example(id, row) for id, row in example_rows(str(tmp_path / "a.parquet")) if isinstance(row, dict)]
    assert all(isinstance(content, Dialogue) for content in read)
    found = [content.messages[0]["tool_calls"][0]["function"] for content in read if isinstance(content, Dialogue)]
    assert found == calls
    assert all(content.messages[1]["content"] == "" for content in read if isinstance(content, Dialogue))
    assert "null" not in json.dumps([content.tools for content in read if isinstance(content, Dialogue)])


def test_older_and_nested_forms_of_messages_are_read() -> None:
    question, answer = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}
    calling = {"role": "assistant", "content": None, "function_call": {"name": "python", "arguments": "{}"}}
    older = read_example("x", {"messages": [question, calling, {"role": "function", "name": "python", "content": "2"}]})
    assert isinstance(older, Dialogue)
    assert [message["role"] for message in older.messages] == ["user", "assistant", "tool"]
    assert older.messages[1]["tool_calls"][0]["function"] == {"name": "python", "arguments": {}}
    assert "function_call" not in older.messages[1]
    plain = read_example("x", {"messages": [question, answer]})
    assert read_example("x", {"messages": json.dumps([question, answer])}) == plain
    assert read_example("x", {"conversations": [question, answer]}) == plain
    alpaca = read_example("x", {"instruction": "Add.", "input": "1 and 1", "output": "2"})
    assert isinstance(alpaca, SolvedProblem)
    assert (alpaca.problem.question, alpaca.response) == ("Add.\n\n1 and 1", "2")


@pytest.mark.parametrize("name", ["loss", "training", "train"])
def test_messages_that_their_file_excludes_have_no_weight(name: str) -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", name: False}]
    turns += [{"from": "gpt", "value": "c", name: True}, {"from": "gpt", "value": "c", name: None}]
    content = read_example("x", {"conversations": turns})
    assert isinstance(content, Dialogue)
    assert content.weights == (0, 0, 1, 1)
    assert all(message.keys() == {"role", "content"} for message in content.messages)
