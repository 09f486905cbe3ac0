"""No field of a row that would change a prompt or the loss is dropped silently, in any form of examples."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers.processors import TemplateProcessing

from example_forms import (
    ASKED,
    DROPPED,
    EMPTY,
    FIELDS,
    FORMS,
    REFUSED,
    REPLIED,
    SAID,
    SAME,
    SCHEMA,
    TEMPLATE,
    USED,
    model,
    outcome,
    reader,
    table,
    trained,
)
from places import ROOT
from torl.base.errors import DataError
from torl.components.data.example_files import example_rows
from torl.components.data.examples import Dialogue, read_example
from torl.training.example_reader import DroppedExampleError, ExampleReader

DOCUMENTATION = ROOT / "docs/reference/example_fields.md"
CONVERSATIONS = [form for form in FORMS if "messages" in form or "conversations" in form]
MARKS = ["loss", "train", "training", "weight"]


@pytest.fixture(scope="module")
def examples() -> ExampleReader:
    return reader()


def with_message(form: str, place: int, **more: Any) -> dict[str, Any]:
    """The row of a form with more fields of one of its messages: the question (0) or the response (1)."""
    row: dict[str, Any] = json.loads(json.dumps(FORMS[form]))
    messages = row.get("messages") or row.get("conversations") or [*row["prompt"], *row["completion"]]
    messages[place].update(more)
    return row


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_used_or_refused_or_dropped_or_reported(examples: ExampleReader, form: str, field: str) -> None:
    found = outcome(examples, FORMS[form], {field: FIELDS[field]})
    assert found in (USED, REFUSED, DROPPED, SAID)
    if form in SAME:
        assert outcome(examples, SAME[form], {field: FIELDS[field]}) == found


def test_documentation_has_what_the_reader_does(examples: ExampleReader) -> None:
    found = table(examples)
    assert found in DOCUMENTATION.read_text(), found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", FIELDS)
def test_field_without_a_value_is_absent(examples: ExampleReader, form: str, field: str) -> None:
    for value in EMPTY:
        assert outcome(examples, FORMS[form], {field: value}) == "", repr(value)


def test_fields_that_are_not_read_are_counted_over_rows(examples: ExampleReader) -> None:
    examples.start_source()
    for number in range(3):
        more = {"source": "a", "level": None if number else 1}
        trained(examples, {**FORMS["`messages`"], **more})
    trained(examples, FORMS["`text`"])
    assert str(examples.fields) == "3 rows have fields that are not read: source (3 rows), level (1 row)"


@pytest.mark.parametrize("form", CONVERSATIONS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(
    ("values", "weight"),
    [([False, 0, 0.0], 0), ([True, 1, 1.0, None, float("nan")], 1)],
    ids=["false", "true or absent"],
)
def test_marks_of_the_loss_are_equal_in_all_types(form: str, mark: str, values: list[Any], weight: float) -> None:
    for value in values:
        content = read_example("f, line 1", with_message(form, -1, **{mark: value}))
        assert isinstance(content, Dialogue)
        assert content.weights == (0, weight), repr(value)


@pytest.mark.parametrize("form", CONVERSATIONS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("value", ["", "0", "false", [], [1], {}, -1, 2.5, float("inf")])
def test_other_marks_of_the_loss_are_refused(form: str, mark: str, value: Any) -> None:
    if mark == "weight" and value == 2.5:
        return  # a weight
    with pytest.raises(DataError, match=f"{mark!r} must be"):
        read_example("f, line 1", with_message(form, -1, **{mark: value}))


@pytest.mark.parametrize("form", CONVERSATIONS)
@pytest.mark.parametrize("mark", MARKS)
def test_mark_that_asks_to_train_a_message_of_others_is_refused(form: str, mark: str) -> None:
    with pytest.raises(DataError, match=f"{mark!r} asks to train a message that is not trained here"):
        read_example("f, line 1", with_message(form, 0, **{mark: True}))
    assert isinstance(read_example("f, line 1", with_message(form, 0, **{mark: 0.0})), Dialogue)


@pytest.mark.parametrize("form", CONVERSATIONS)
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loss_mask", 0),
        ("loss_mask", [1, 0]),
        ("mask", 1),
        ("trainOnInput", True),
        ("masked", False),
        ("labels", [1]),
        ("images", ["a.png"]),
        ("image_url", "a.png"),
        ("audio", {"id": "a"}),
        ("tools", [SCHEMA]),
        ("prefix", True),
    ],
)
def test_field_of_a_message_that_changes_the_prompt_or_the_loss_is_refused(
    form: str, place: int, field: str, value: Any
) -> None:
    with pytest.raises(DataError, match=f"{field!r} would change the (prompt|loss) and is not read here"):
        read_example("f, line 1", with_message(form, place, **{field: value}))
    for empty in EMPTY:
        assert isinstance(read_example("f, line 1", with_message(form, place, **{field: empty})), Dialogue)


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_field_of_a_message_that_the_template_does_not_read_is_reported(form: str) -> None:
    row = with_message(form, 0, name="Ada")
    for template, said in ((TEMPLATE, {"name of messages": 1}), ("{{ messages[0].name }}" + TEMPLATE, {})):
        examples = reader(template)
        plain, named = trained(examples, FORMS[form]), trained(examples, row)
        assert (plain == named) == bool(said)
        assert examples.fields.counts == said


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_reasoning_of_a_message_is_trained(examples: ExampleReader, form: str) -> None:
    ((ids, _),) = trained(examples, with_message(form, -1, reasoning_content="Carry nothing."))
    assert "Carry nothing." in examples._model.tokenizer.decode(ids)
    with pytest.raises(DataError, match="'reasoning_content' must be text, got a list"):
        trained(examples, with_message(form, -1, reasoning_content=["Hm."]))


@pytest.mark.parametrize("name", ["text", "value", "content"])
def test_parts_of_a_message_are_read(name: str) -> None:
    parts = [{"type": "text", name: "1 + "}, {"type": "text", name: "1?", "image_url": None}]
    assert read_example("x", {"messages": [{"role": "user", "content": parts}, REPLIED]}) == read_example(
        "x", FORMS["`messages`"]
    )


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must be text, got null"),
        (float("nan"), "must be text, got null"),
        ([], "must be text, got an empty list"),
        ([None], "an object with type and text, got null"),
        (["a"], "an object with type and text, got text"),
        ([{}], r"the type None; the object is empty"),
        ([{"type": "text"}], "the type 'text'; the columns are: type"),
        ([{"type": "text", "text": None}], "the type 'text'; the columns are: text, type"),
        ([{"type": "text", "text": 5}], "the columns are: text, type"),
        ([{"type": "text", "body": "a"}], "the columns are: body, type"),
        ([{"type": "text", "text": "a", "value": "b"}], "the columns are: text, type, value"),
        ([{"type": "text", "text": "a", "image": "b"}], "the columns are: image, text, type"),
        ([{"type": "image", "image": "b"}], "the type 'image'; the columns are: image, type"),
        ([{"text": "a"}], "the type None; the columns are: text"),
        (5, "must be text, or a list of parts that are text, got a number"),
        (False, "must be text, or a list of parts that are text, got true or false"),
        ({"text": "a"}, "must be text, or a list of parts that are text, got an object"),
    ],
)
def test_question_without_a_text_is_refused(role: str, content: Any, message: str) -> None:
    for row in (
        {"messages": [{"role": role, "content": content}, REPLIED]},
        {"prompt": [{"role": role, "content": content}], "completion": [REPLIED]},
        {"conversations": [{"from": role, "value": content}, {"from": "gpt", "value": "2."}]},
    ):
        with pytest.raises(DataError, match=message):
            read_example("x", row)


def test_true_reason_is_named_when_no_example_is_left(examples: ExampleReader) -> None:
    for messages, reason in (
        ([ASKED], "no message of the model"),
        ([ASKED, REPLIED | {"content": []}], "all messages of the model are empty or excluded"),
        ([ASKED, REPLIED | {"loss": 0.0}], "all messages of the model are empty or excluded"),
        ([REPLIED, ASKED], "the model begins"),
    ):
        with pytest.raises(DroppedExampleError, match=rf"without a trained token \({reason}\)"):
            trained(examples, {"messages": messages})


@pytest.mark.parametrize("field", ["system", "system_prompt", "system_message"])
@pytest.mark.parametrize("form", [form for form in FORMS if outcome(reader(), FORMS[form], {"system": "a"}) == USED])
def test_system_message_of_a_row_precedes_its_messages(form: str, field: str) -> None:
    content = read_example("x", {**FORMS[form], field: "Add."})
    assert isinstance(content, Dialogue)
    assert content.messages == ({"role": "system", "content": "Add."}, ASKED, REPLIED)
    assert content.weights == (0, 0, 1)
    with pytest.raises(DataError, match="different"):
        read_example("x", {**FORMS[form], "system": "Add.", "system_prompt": "Subtract."})
    with pytest.raises(DataError, match=f"{field!r} must be text, got a number"):
        read_example("x", {**FORMS[form], field: 5})


@pytest.mark.parametrize("field", ["messages", "prompt", "conversations"])
def test_system_message_that_contradicts_the_messages_is_refused(field: str) -> None:
    row = {field: [{"role": "system", "content": "Add."}, ASKED], "completion": [REPLIED]}
    same = read_example("x", {**row, "system": "Add. "})
    assert isinstance(same, Dialogue)
    assert [message["role"] for message in same.messages[:2]] == ["system", "user"]
    with pytest.raises(DataError, match=f"'system' and the system message of {field!r} are different"):
        read_example("x", {**row, "system": "Subtract."})


@pytest.mark.parametrize(
    "write",
    [
        lambda tool: tool,
        lambda tool: json.dumps(tool),
        lambda tool: tool["function"],
        lambda tool: {"type": "function", **tool["function"]},
        lambda tool: {"function": tool["function"], "type": None},
        lambda tool: {**tool, "function": json.dumps(tool["function"])},
        lambda tool: {"function": {**tool["function"], "parameters": json.dumps(tool["function"]["parameters"])}},
        lambda tool: {"function": dict(sorted(tool["function"].items(), reverse=True)), "type": "function"},
    ],
)
@pytest.mark.parametrize("whole", [list, json.dumps])
def test_tools_have_the_form_of_a_rollout(write: Callable[[Any], Any], whole: Callable[[Any], Any]) -> None:
    (tool,) = model()[1].tool_schemas()
    content = read_example("x", {**FORMS["`messages`"], "tools": whole([write(tool)])})
    assert isinstance(content, Dialogue)
    assert json.dumps(content.tools) == json.dumps([tool])


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (
            [{"name": "f", "parameters": "none"}],
            "'parameters' must be an object, or the JSON of one, got the text 'none'",
        ),
        ([{"name": "f", "parameters": [1]}], "'parameters' must be an object, or the JSON of one, got a list"),
        (["weather"], r"'tools\[0\]' must be an object, or the JSON of one, got the text 'weather'"),
        ([SCHEMA, 5], r"'tools\[1\]' must be an object, or the JSON of one, got a number"),
        ({"weather": SCHEMA}, "'tools' must be a list of objects, got an object"),
        ([{"type": "function", "function": {"title": "f"}}], "a tool without a name; the columns are: title"),
    ],
)
def test_error_of_tools_says_what_was_found(tools: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_example("x", {**FORMS["`messages`"], "tools": tools})


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"name": "f", "arguments": {"a": 1}}, {"a": 1}),
        ({"name": "f", "parameters": {"a": 1}}, {"a": 1}),
        ({"function": '{"name": "f", "arguments": {"a": 1}}'}, {"a": 1}),
        ({"name": "f", "arguments": None, "parameters": {"a": 1}}, {"a": 1}),
        ({"name": "f"}, {}),
        ({"name": "f", "arguments": {"a": 1}, "parameters": {"a": 2}}, None),
        ({"name": "f", "args": {"a": 1}}, None),
        ({"name": "f", "arguments": 0}, None),
        ({"name": "f", "arguments": False}, None),
    ],
)
def test_arguments_of_a_call_are_read_or_refused(call: dict[str, Any], arguments: dict[str, Any] | None) -> None:
    for fields in ({"tool_calls": [call]}, {"function_call": call}, {"tool_calls": json.dumps([call])}):
        row = {"messages": [ASKED, {"role": "assistant", "content": None, **fields}]}
        if arguments is None:
            with pytest.raises(DataError, match=r"'arguments'|arguments of 'f'"):
                read_example("x", row)
        else:
            content = read_example("x", row)
            assert isinstance(content, Dialogue)
            assert content.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": arguments}


@pytest.mark.parametrize("field", ["segments", "messages", "conversations", "prompt", "completion"])
def test_empty_list_is_refused_with_its_field(field: str) -> None:
    row = next(row for row in FORMS.values() if isinstance(row.get(field), list))
    with pytest.raises(DataError, match=f"f, line 1: {field!r} is an empty list"):
        read_example("f, line 1", {**row, field: []})


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ({"text": "a"}, "'label' is missing; the columns are: text"),
        ({"label": None, "text": "a"}, "'label' is missing"),
        ({"label": True, "text": None}, "'text' is missing"),
        ({"label": "true", "text": "a"}, "'label' must be true or false"),
        ({"label": 2, "text": "a"}, "'label' must be true or false"),
        ({"label": True, "text": "a", "mask": 1}, "'mask' would change the loss"),
    ],
)
def test_segment_without_a_label_or_a_text_is_refused(segment: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"x: segments\[0\]: {message}"):
        read_example("x", {"segments": [segment]})


def test_label_of_a_text_is_a_class_and_no_verdict(examples: ExampleReader) -> None:
    for label in (0, 1, 3, "sport"):
        assert outcome(examples, FORMS["`text`"], {"label": label}) == SAID


@pytest.mark.parametrize("form", [form for form in FORMS if form != "`text`"])
@pytest.mark.parametrize("label", [True, 1, 1.0])
def test_rows_with_a_true_label_are_trained(examples: ExampleReader, form: str, label: Any) -> None:
    assert trained(examples, {**FORMS[form], "label": label}) == trained(examples, FORMS[form])
    for bad in (0, 0.0):
        assert outcome(examples, FORMS[form], {"label": bad}) == DROPPED
    for other in ("good", 2, 0.5, [0]):
        assert outcome(examples, FORMS[form], {"label": other}) == REFUSED


@pytest.mark.parametrize("form", FORMS)
def test_ignored_fields_are_left_out(tmp_path: Path, examples: ExampleReader, form: str) -> None:
    row = {**FORMS[form], "images": ["a.png"], "loss": 3.5}
    if form in CONVERSATIONS:
        row = {**with_message(form, -1, loss_mask=0), "images": ["a.png"], "loss": 3.5}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    ((_, found),) = example_rows(str(tmp_path / "a.jsonl"), ignore=("images", "loss", "loss_mask"))
    assert isinstance(found, Mapping)
    assert trained(examples, found) == trained(examples, FORMS[form])


@pytest.mark.parametrize("names", [("query", "reply"), ("question", "output"), ("instruction", "answer")])
def test_column_that_a_field_is_read_from_is_not_reported(
    tmp_path: Path, examples: ExampleReader, names: tuple[str, str]
) -> None:
    question, response = names
    (tmp_path / "a.jsonl").write_text(json.dumps({question: "1 + 1?", response: "2.", "note": "a"}) + "\n")
    ((_, row),) = example_rows(str(tmp_path / "a.jsonl"), columns={"problem": question, "response": response})
    assert isinstance(row, Mapping)
    examples.start_source()
    assert trained(examples, row) == trained(examples, FORMS["`problem`, `response`"])
    assert examples.fields.counts == {"note": 1}


@pytest.mark.parametrize(
    ("name", "harmless", "marks"),
    [
        ("split", ["train", 1], []),
        ("training_stage", ["sft", "2024-01-01", ["a", "b"], {"name": "x"}], [1, True, False, 0.5, "1", {"x": 0}]),
        ("train_test", ["train", "test"], [0, "false", "[0, 1]"]),
        ("used_in_training", ["Ultra"], ["yes", "No", True]),
        ("labels", [["algebra"], "algebra"], [[-100, 7], 1, {"value": [0.0]}]),
        ("lossMask", [], ["ours", [0, 1], False, 0]),
        ("train", [], ["yes", "Ultra", 0, 1]),
        ("has_image", [False, 0], [True, "yes"]),
        ("num_images", [0], [2]),
        ("weightlifting", [3, True], []),
        ("constraint", [1], []),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_name_of_several_words_is_refused_only_with_a_value_that_may_be_a_mark(
    examples: ExampleReader, form: str, name: str, harmless: list[Any], marks: list[Any]
) -> None:
    for value in harmless:
        assert outcome(examples, FORMS[form], {name: value}) == SAID, value
    for value in marks:
        assert outcome(examples, FORMS[form], {name: value}) == REFUSED, value


@pytest.mark.parametrize("part", ["input", "context"])
def test_part_of_a_question_is_refused_unless_the_template_reads_it(part: str) -> None:
    row = {**FORMS["`problem`, `response`"], part: "In binary."}
    for more in ({}, {"system": "Add."}):
        with pytest.raises(DataError, match=rf"f, line 1: '{part}' is a part of the question.*finetune.train.columns"):
            trained(reader(), {**row, **more})
    config, opened = model(prompt="example_forms:with_metadata")
    ((ids, _),) = trained(ExampleReader(config, opened), row)
    assert "In binary." in opened.tokenizer.decode(ids)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_parquet_and_of_arrays_are_read_as_those_of_json(
    tmp_path: Path, examples: ExampleReader, form: str
) -> None:
    """Parquet fills the members of all objects with null, a mark with gaps becomes a float, a list an array."""
    marked = with_message(form, -1, loss=0) if form in CONVERSATIONS else FORMS[form]
    other = {name: value for each in FORMS.values() for name, value in each.items() if name not in FORMS[form]}
    compatible = {name: value for name, value in other.items() if not isinstance(value, type(FORMS[form].get(name)))}
    rows = [FORMS[form], marked, {**compatible, "images": ["a"], "tools": [SCHEMA], "loss_mask": 1.0}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_schema(rows)), tmp_path / "a.parquet")
    (_, first), (_, second), _ = example_rows(str(tmp_path / "a.parquet"))
    assert isinstance(first, Mapping)
    assert isinstance(second, Mapping)
    arrays = {
        name: np.array(value, dtype=object) if isinstance(value, list) else value for name, value in FORMS[form].items()
    }
    assert trained(examples, first) == trained(examples, arrays) == trained(examples, FORMS[form])
    if form in CONVERSATIONS:
        with pytest.raises(DroppedExampleError, match="without a trained token"):
            trained(examples, second)


def _schema(rows: list[dict[str, Any]]) -> pyarrow.Schema:
    return pyarrow.unify_schemas(
        [pyarrow.Table.from_pylist([row]).schema for row in rows], promote_options="permissive"
    )


@pytest.mark.parametrize("form", FORMS)
def test_tokenizer_that_ends_every_text_is_refused_in_every_form(form: str) -> None:
    """Its end token would stand inside the sequence. Messages are encoded without the additions of the tokenizer."""
    config, opened = model()
    ended = opened.tokenizer.backend_tokenizer
    ended.post_processor = TemplateProcessing(
        single="$A <|im_end|>", special_tokens=[("<|im_end|>", opened.tokenizer.eos_token_id)]
    )
    if form in CONVERSATIONS:
        assert trained(ExampleReader(config, opened), FORMS[form]) == trained(reader(), FORMS[form])
    else:
        with pytest.raises(DataError, match=r"f, line 1: the tokenizer ends prompts with its end-of-sequence token"):
            trained(ExampleReader(config, opened), FORMS[form])


def test_document_that_spells_its_end_is_trained(examples: ExampleReader) -> None:
    ((ids, weights),) = trained(examples, {"text": "1 + 1? 2.<|im_end|>"})
    assert (ids, weights) == trained(examples, {"text": "1 + 1? 2."})[0]
