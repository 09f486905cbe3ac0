"""Fine-tuning against TRL's `SFTTrainer`: the same rows, the same losses, the same weights after two steps."""

import copy
import datetime
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import SFTConfig, SFTTrainer

from tokenizers_for_tests import byte_level_bpe
from torl.base.errors import DataError
from torl.components.text.example_encoder import ExampleEncoder
from torl.components.text.tokenizer import load_tokenizer
from torl.run.config import FinetuneConfig
from torl.run.config.loading import load_config
from torl.run.display.console import Console
from torl.training.supervised_run import finetune
from vocabularies import TEMPLATES, model, package

RATE, STEPS, ROWS = 1e-3, 2, 6
# ChatML with a name before each result; `generation` tells TRL which tokens are the model's.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n"
    "</tool_call>{% endfor %}<|im_end|>{% endgeneration %}\n{% else %}{{ message.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers with the tests' vocabulary and a chat template."""
    directory = tmp_path_factory.mktemp("model")
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    return directory


def conversations() -> list[dict[str, Any]]:
    """Ragged conversations with a call and its result."""
    rows = []
    for number in range(ROWS):
        call = {"type": "function", "function": {"name": "python", "arguments": {"code": f"print({number})"}}}
        rows.append(
            {
                "messages": [
                    {"role": "user", "content": "Let us compute the sum with Python, " + "step by step, " * number},
                    {"role": "assistant", "content": "Let x be 12.", "tool_calls": [call]},
                    {"role": "tool", "content": f"{number}\n12"},
                    {"role": "assistant", "content": "So the answer is \\boxed{12}."},
                ]
            }
        )
    return rows


def completions() -> list[dict[str, Any]]:
    """Ragged prompts and completions without a chat template."""
    return [
        {"prompt": "Let us compute" + " the sum" * number, "completion": f" So the answer is {number}."}
        for number in range(ROWS)
    ]


class Losses(TrainerCallback):
    """The losses that a trainer logs."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **others: Any) -> None:
        if "loss" in logs:
            self.values.append(float(logs["loss"]))


def trained_by_trl(base: Path, rows: list[dict[str, Any]], output: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses and the weights of TRL's trainer."""
    losses = Losses()
    config = SFTConfig(
        output_dir=str(output),
        per_device_train_batch_size=ROWS,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        assistant_only_loss="messages" in rows[0],
        max_length=1024,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(base),
        callbacks=[losses],
    )
    trainer.train()
    return losses.values, {name: weight.detach() for name, weight in trainer.model.named_parameters()}


async def trained_by_torl(
    base: Path, rows: list[dict[str, Any]], directory: Path
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses and the weights of torl."""
    examples = directory / "examples.jsonl"
    examples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "model.path": str(base),
        "finetune.train": str(examples),
        "finetune.batch_size": ROWS,
        "run.directory": str(directory / "run"),
        "run.steps": STEPS,
        "run.trackers": {},
        "learner.dtype": "float32",
        "learner.learning_rate": RATE,
        "learner.weight_decay": 0.0,
        "learner.cpu_threads": 1,
        "checkpoint.every_steps": 0,
    }
    with Console(io.StringIO()) as console:
        await finetune(load_config(FinetuneConfig, None, settings), console)
    lines = [json.loads(line) for line in (directory / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["learner/loss"] for line in lines if "learner/loss" in line]
    return losses, load_file(directory / "run/model/model.safetensors")


@pytest.mark.parametrize("template", sorted(TEMPLATES.keys() - {"deepseekv3"}))
def test_messages_of_each_family_are_trained_with_their_end_tokens(template: str) -> None:
    """The reference: the text that TRL's copy of the family's template renders."""
    family = TEMPLATES[template]
    played = model(family)
    tokenizer = copy.copy(played.tokenizer)
    tokenizer.chat_template = (package("trl") / "chat_templates" / f"{template}.jinja").read_text()
    encoder = ExampleEncoder(tokenizer, played.end_token_ids, date=datetime.date.today())  # as TRL's
    call = {"type": "function", "function": {"name": "python", "arguments": {"code": "print(12 * 3)"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Compute 12 * 3."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "python", "content": "36"},
        {"role": "assistant", "content": "It is 36."},
        {"role": "user", "content": "And 2?"},
        {"role": "assistant", "content": "It is 6."},
    ]
    sequences = encoder.dialogue(messages, [float(each["role"] == "assistant") for each in messages])
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert tokenizer.decode(sequences[-1].token_ids) == whole
    runs: list[str] = []
    for sequence in sequences:
        pairs = zip(sequence.token_ids, sequence.weights, strict=True)
        for weight, run in itertools.groupby(pairs, key=lambda pair: pair[1]):
            if weight:
                runs.append(tokenizer.decode([token for token, _ in run]))
    ends = tuple(tokenizer.decode([token]) for token in played.end_token_ids)
    assert len(runs) == 3
    assert all(run.endswith(ends) for run in runs)
    assert ["print(12 * 3)" in runs[0], "It is 36." in runs[1], "It is 6." in runs[2]] == [True] * 3
    assert not any(text in run for run in runs for text in ("Compute", "And 2?"))
    # Qwen3 changes each message once another follows: the result is in the prompt of a further sequence.
    pairs = [pair for each in sequences for pair in zip(each.token_ids, each.observed, strict=True)]
    result = tokenizer.decode([token for token, observed in pairs if observed])
    assert ("36" in result) == (template != "qwen3")


def test_template_that_opens_thoughts_in_the_prompt_alone_is_refused() -> None:
    played = model("deepseek")
    tokenizer = copy.copy(played.tokenizer)
    tokenizer.chat_template = (package("trl") / "chat_templates" / "deepseekv3.jinja").read_text()
    messages = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
    with pytest.raises(DataError, match=r"differently than the prompt that the model continues, .*<think>"):
        ExampleEncoder(tokenizer, played.end_token_ids).dialogue(messages, [0, 1])


@pytest.mark.parametrize("rows", [conversations(), completions()], ids=["conversations", "completions"])
async def test_losses_and_weights_equal_those_of_the_sft_trainer(
    tiny_model: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    expected, weights = trained_by_trl(tiny_model, rows, tmp_path / "trl")
    losses, found = await trained_by_torl(tiny_model, rows, tmp_path)
    assert losses == pytest.approx(expected, abs=1e-5)
    assert all(float((weights[name] - found[name]).abs().max()) < RATE / 100 for name in found)
