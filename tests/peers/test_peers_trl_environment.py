"""The environment for TRL, in that library's own training loop: rollouts, tool calls, rewards, an update."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torl.errors import SandboxError
from torl.sandbox import SandboxPool
from torl.sandbox.environments.trl import PythonEnvironment, environment_factory

PAD, END = "<|endoftext|>", "<|im_end|>"
QUESTION = {"role": "user", "content": "What is the sum of 0..99?"}
CODE = "print(sum(range(100)))"


@pytest.fixture
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=10) as pool:
        yield pool


def dialog() -> list[dict[str, Any]]:
    call = {"type": "function", "function": {"name": "python", "arguments": {"code": CODE}}}
    return [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "python", "content": "4950"},
        {"role": "assistant", "content": "It is 4950."},
    ]


def learned_by_heart(pool: SandboxPool) -> tuple[Any, Any]:
    """A tiny Qwen2 that knows one dialog, and its tokenizer with Qwen2.5's chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl.chat_template_utils import qwen2_5_chat_template

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [PAD, "<|im_start|>", END, "<tool_call>", "</tool_call>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [qwen2_5_chat_template, CODE],
        trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = qwen2_5_chat_template
    ids = tokenizer.apply_chat_template(dialog(), tools=[PythonEnvironment(pool).python], return_dict=False)
    batch = torch.tensor([ids])
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(120):
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    return model, tokenizer


def test_its_trainer_trains_with_calls_of_the_sandbox(pool: SandboxPool, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = learned_by_heart(pool)
    seen: list[list[dict[str, Any]]] = []

    def right(completions: list[list[dict[str, Any]]], **_: Any) -> list[float]:
        seen.extend(completions)
        return [float("4950" in str(completion[-1]["content"])) for completion in completions]

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=right,
        train_dataset=Dataset.from_list([{"prompt": [QUESTION]}] * 2),
        environment_factory=environment_factory(pool),
        args=GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
            max_completion_length=128, temperature=0.1, use_cpu=True, bf16=False, gradient_checkpointing=False,
            report_to="none", save_strategy="no", logging_steps=1,
        ),
    )  # fmt: skip
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "tools/call_frequency" in row]
    assert (row["tools/call_frequency"], row["tools/failure_frequency"]) == (1.0, 0.0)
    assert [completion[1]["content"] for completion in seen] == ["4950", "4950"]
    assert [completion[-1]["content"] for completion in seen] == ["It is 4950."] * 2
    assert row["reward"] == 1.0
    assert pool.stats()["ok"] >= 1


async def test_calls_share_a_state_until_the_next_rollout(pool: SandboxPool) -> None:
    environment = environment_factory(pool)()
    assert await environment.python("x = 41") == ""
    assert await environment.python("print(x + 1)") == "42"
    assert await environment.python("x + 2") == "43"
    assert (await environment.python("1 / 0")).endswith("ZeroDivisionError: division by zero")
    environment.reset(question="another")
    assert "NameError" in await environment.python("x")
    assert environment.get_reward() == 0.0


async def test_a_broken_host_stops_training_and_is_nothing_to_learn_from(pool: SandboxPool) -> None:
    environment = environment_factory(pool)()
    pool.close()
    with pytest.raises(SandboxError):
        await environment.python("1")
    with pytest.raises(SandboxError):
        environment.get_reward()
