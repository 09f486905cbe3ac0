"""Rows in each form of examples, and the outcome of a further field: judged by the tokens that are trained."""

from collections.abc import Mapping
from typing import Any

from tokenizers_for_tests import chat_tokenizer
from torl.base.errors import DataError
from torl.base.paths import resolve_path
from torl.base.types import Problem
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import FinetuneConfig
from torl.run.config.loading import find_config, load_config
from torl.training.example_reader import DroppedExampleError, ExampleReader

TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASKED, REPLIED = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2."}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
SCHEMA = {"name": "weather", "description": "Of a city.", "parameters": CITY}
FORMS: Mapping[str, dict[str, Any]] = {
    "`messages`": {"messages": [ASKED, REPLIED]},
    "`conversations`": {"conversations": [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2."}]},
    "`prompt`, `completion`: messages": {"prompt": [ASKED], "completion": [REPLIED]},
    "`prompt`, `completion`: texts": {"prompt": "1 + 1?", "completion": "2."},
    "`problem`, `response`": {"problem": "1 + 1?", "response": "2."},
    "`instruction`, `output`": {"instruction": "1 + 1?", "output": "2."},
    "`segments`": {"segments": [{"label": False, "text": "1 + 1?"}, {"label": True, "text": "2."}]},
    "`text`": {"text": "1 + 1? 2."},
}
"""A row in each form."""
SAME = {
    "`prompt`, `completion`: messages": {"prompt": [ASKED], "response": "2."},
    "`prompt`, `completion`: texts": {"prompt": "1 + 1?", "response": "2."},
    "`problem`, `response`": {"question": "1 + 1?", "solution": "2."},
    "`messages`": {"conversations": [ASKED, REPLIED]},
    "`conversations`": {"conversations": ["1 + 1?", "2."]},
    "`instruction`, `output`": {"instruction": "1 + 1?", "response": "2."},
}
"""The same rows with the other names of the fields."""
FIELDS: Mapping[str, Any] = {
    "system": "Add.",
    "system_prompt": "Add.",
    "tools": [SCHEMA],
    "functions": [SCHEMA],
    "history": [["0 + 1?", "1."]],
    "input": "Twice.",
    "context": "In binary.",
    "images": ["a.png"],
    "video": {"bytes": None, "path": "a.mp4"},
    "audios": ["a.wav"],
    "label": False,
    "loss": 0,
    "train": False,
    "weight": 0.5,
    "loss_mask": [0, 1],
    "labels": [-100, 7],
    "chat_template_kwargs": {"enable_thinking": False},
    "prefix": True,
    "reasoning_content": "Hm.",
    "chosen": "2.",
    "rejected": "3.",
    "tool_calls": [{"name": "weather", "arguments": {}}],
    "name": "Ada",
    "source": "a book",
    "split": "train",
    "used_in_training": "yes, in stage 2",
    "train_test": "train",
    "has_image": False,
    "num_images": 0,
}
"""Fields of other formats, each with a value that says something."""
EMPTY: tuple[Any, ...] = (None, "", " ", float("nan"), [], {}, {"path": None, "bytes": None})
"""Values that say nothing: of gaps in CSV and parquet files, of pandas, and of `datasets`."""
USED, REFUSED, DROPPED, SAID = "used", "refused", "dropped", "said"


def with_metadata(problem: Problem) -> str:
    """A prompt template that reads the metadata of a problem."""
    return f"{problem.question} {' '.join(map(str, problem.metadata.values()))}"


def model(template: str = TEMPLATE, prompt: str = "chatml") -> tuple[FinetuneConfig, ModelDirectory]:
    """A model with this chat template, and a configuration of its family with this prompt template."""
    tokenizer = chat_tokenizer(template)
    tokenizer.eos_token = "<|im_end|>"
    settings = {"finetune.train": "x.jsonl", "rollout.format": "hermes", "data.template": prompt}
    config = load_config(FinetuneConfig, find_config("demo"), settings)
    return config, ModelDirectory(resolve_path("torl:demo/base_model"), tokenizer, config.rollout.tools)


def reader(template: str = TEMPLATE) -> ExampleReader:
    """A reader for such a model."""
    return ExampleReader(*model(template))


def trained(reader: ExampleReader, row: Mapping[str, Any]) -> list[tuple[list[int], list[float]]]:
    """The tokens of a row, and their weights."""
    return [(sample.token_ids.tolist(), sample.advantages.tolist()) for sample in reader.read("f, line 1", row)]


def outcome(reader: ExampleReader, row: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """Read a row with more fields, and return the outcome; "" if it trains the same and says nothing."""
    reader.start_source()
    before = trained(reader, row)
    assert not reader.fields, reader.fields
    try:
        after = trained(reader, {**row, **more})
    except DroppedExampleError:
        return DROPPED
    except DataError as error:
        return REFUSED if all(name in str(error) for name in more) else str(error)
    else:
        said = set(reader.fields.counts) == set(more)
        return USED if after != before else SAID if said else ""


def table(reader: ExampleReader) -> str:
    """The table of the documentation: the outcome of each field in each form. Fields with equal rows share one."""
    fields: dict[tuple[str, ...], list[str]] = {}
    for name, value in FIELDS.items():
        fields.setdefault(tuple(outcome(reader, row, {name: value}) for row in FORMS.values()), []).append(f"`{name}`")
    lines = [["a further field", *FORMS], ["---"] * (len(FORMS) + 1)]
    lines += [[", ".join(names), *cells] for cells, names in fields.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
