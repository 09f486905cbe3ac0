"""Rows in the shapes of public sets, read as their authors mean them: the tokens that are trained are between marks."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from example_forms import ASKED, REPLIED, SCHEMA, reader
from torl.base.errors import DataError
from torl.components.data.example_files import example_rows
from torl.training.example_reader import ExampleReader

HUMAN, GPT = {"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2."}
START, END = "<|im_start|>", "<|im_end|>"
PLAIN = f"{START}user\n1 + 1?{END}\n{START}assistant\n«2.{END}»"
CHAT = f"{PLAIN}\n"
SYSTEM = f"{START}system\nAdd.{END}\n{CHAT}"
SHAPES: Mapping[str, tuple[Any, dict[str, Any], str]] = {
    "UltraChat 200k, no_robots": ({"prompt": "1 + 1?", "prompt_id": "f0", "messages": [ASKED, REPLIED]}, {}, CHAT),
    "UltraChat": ({"id": "0", "data": ["1 + 1?", "2."]}, {"columns": {"conversations": "data"}}, CHAT),
    "LIMA": ({"conversations": ["1 + 1?", "2."], "source": "stackexchange"}, {}, CHAT),
    "OpenHermes 2.5": (
        {
            "conversations": [HUMAN | {"weight": None}, GPT | {"weight": None}],
            "system_prompt": None,
            "skip_prompt_formatting": False,
            "views": None,
        },
        {},
        CHAT,
    ),
    "SlimOrca": (
        {
            "conversations": [
                {"from": "system", "value": "Add.", "weight": None},
                HUMAN | {"weight": 0.0},
                GPT | {"weight": 1.0},
            ]
        },
        {},
        SYSTEM,
    ),
    "OpenOrca": ({"id": "niv.1", "system_prompt": "Add.", "question": "1 + 1?", "response": "2."}, {}, SYSTEM),
    "OpenOrca without a system message": ({"system_prompt": "", "question": "1 + 1?", "response": "2."}, {}, PLAIN),
    "Dolly": (
        {"instruction": "1 + 1?", "context": "In binary.", "response": "2.", "category": "closed_qa"},
        {},
        PLAIN.replace("1?", "1?\n\nIn binary."),
    ),
    "Dolly without a context": ({"instruction": "1 + 1?", "context": "", "response": "2."}, {}, PLAIN),
    "Alpaca": ({"instruction": "1 + 1?", "input": "", "output": "2.", "text": "### Response: 2."}, {}, PLAIN),
    "MetaMathQA": (
        {"type": "MATH_AnsAug", "query": "1 + 1?", "original_question": "1+1?", "response": "2."},
        {"columns": {"problem": "query"}},
        PLAIN,
    ),
    "GSM8K": ({"question": "1 + 1?", "answer": "2."}, {"columns": {"response": "answer"}}, PLAIN),
    "OpenMathReasoning": (
        {"problem": "1 + 1?", "generated_solution": "2.", "expected_answer": "2", "used_in_kaggle": True},
        {"columns": {"response": "generated_solution"}},
        PLAIN,
    ),
    "Llama-Nemotron": (
        {"input": [ASKED], "output": "2.", "system_prompt": "Add.", "used_in_training": "Ultra", "reasoning": "on"},
        {"columns": {"prompt": "input", "completion": "output"}},
        SYSTEM,
    ),
    "OpenCodeReasoning": (
        {"input": "1 + 1?", "output": "2.", "solution": "print(2)", "split": "train"},
        {"columns": {"problem": "input", "response": "output"}},
        PLAIN,
    ),
    "OpenR1-Math": (
        {"problem": "1 + 1?", "solution": "3.", "generations": ["2."], "messages": [ASKED, REPLIED]},
        {},
        CHAT,
    ),
    "UltraFeedback": (
        {"prompt": "1 + 1?", "chosen": [ASKED, REPLIED], "rejected": [ASKED, REPLIED], "score_chosen": 8.0},
        {"columns": {"messages": "chosen"}},
        CHAT,
    ),
    "WildChat": (
        {
            "conversation": [
                ASKED | {"language": "English", "redacted": False, "toxic": False, "turn_identifier": 1, "header": {}},
                REPLIED | {"language": "English", "redacted": False, "toxic": False, "turn_identifier": 1},
            ],
            "openai_moderation": [{"categories": {"harassment": False}, "flagged": False}],
        },
        {"columns": {"messages": "conversation"}},
        CHAT,
    ),
    "Hermes function calling": (
        {
            "conversations": [
                {"from": "system", "value": f"<tools>[{json.dumps(SCHEMA)}]</tools>"},
                HUMAN,
                {"from": "gpt", "value": "<tool_call>\n1\n</tool_call>"},
                {"from": "tool", "value": "<tool_response>\n{}\n</tool_response>"},
                GPT,
            ],
            "tools": json.dumps([SCHEMA]),
        },
        {},
        f"{START}system\n<tools>[{json.dumps(SCHEMA)}]</tools>{END}\n{START}user\n1 + 1?{END}\n"
        f"{START}assistant\n«<tool_call>\n1\n</tool_call>{END}»\n{START}tool\n{{}}{END}\n{START}assistant\n«2.{END}»\n",
    ),
    "xLAM": (
        {"query": "1 + 1?", "answers": '[{"name": "weather", "arguments": {}}]', "tools": json.dumps([SCHEMA])},
        {"columns": {"problem": "query", "response": "answers"}},
        f"{START}system\n{json.dumps([{'type': 'function', 'function': SCHEMA}])}{END}\n"
        + CHAT.replace("2.", '[{"name": "weather", "arguments": {}}]'),
    ),
    "IMDB": ({"text": "1 + 1? 2.", "label": 0}, {}, "1« + 1? 2.<|im_end|>»"),
    "SmolTalk 2": (
        {"messages": [ASKED, REPLIED], "chat_template_kwargs": {"enable_thinking": False}},
        {"ignore": "chat_template_kwargs"},
        CHAT,
    ),
    "LLaVA": ({"image": "0.jpg", "conversations": [HUMAN, GPT]}, {"ignore": "image"}, CHAT),
    "OpenAssistant trees": (
        {"prompt": {"text": "1 + 1?", "role": "prompter", "replies": [{"text": "2.", "role": "assistant"}]}},
        {"columns": {"problem": "prompt.text", "response": "prompt.replies.0.text"}},
        PLAIN,
    ),
}
"""A row in the shape of each set, the settings that read it, and its tokens with marks around the trained ones."""


@pytest.fixture(scope="module")
def examples() -> ExampleReader:
    return reader()


def marked(examples: ExampleReader, row: Mapping[str, Any]) -> str:
    """The text of a row with marks around what is trained."""
    text = ""
    for sample in examples.read("f, line 1", row):
        tokens = zip(sample.token_ids.tolist(), sample.advantages.tolist(), strict=True)
        for is_trained, group in itertools.groupby(tokens, key=lambda pair: pair[1] > 0):
            part = examples._model.tokenizer.decode([token for token, _ in group])
            text += f"«{part}»" if is_trained else part
    return text


@pytest.mark.parametrize("shape", SHAPES)
def test_row_of_a_public_set_is_read_as_its_authors_mean(shape: str, examples: ExampleReader, tmp_path: Path) -> None:
    row, settings, expected = SHAPES[shape]
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    ((_, found),) = example_rows(str(tmp_path / "a.jsonl"), **settings)
    assert isinstance(found, Mapping)
    assert marked(examples, found) == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"conversations": ["1 + 1?", None]}, r"'conversations\[0\]' must be an object"),
        ({"conversations": [HUMAN, "2."]}, r"'conversations\[1\]' must be an object"),
        ({"image": "0.jpg", "conversations": [HUMAN, GPT]}, "'image' would change the prompt.*finetune.train.ignore"),
        ({"question": "1 + 1?", "context": {"a": ["b"]}, "response": "2."}, "'context' is a part of the question"),
        ({"question": "1 + 1?", "solution": "2.", "label": "algebra"}, "'label' must be true.*finetune.train.ignore"),
        ({"chat": "USER: 1 + 1?", "system": "Add."}, "not a known format.*finetune.train.columns"),
    ],
)
def test_row_that_is_refused_names_the_way_out(row: dict[str, Any], message: str, examples: ExampleReader) -> None:
    with pytest.raises(DataError, match=message):
        marked(examples, row)
