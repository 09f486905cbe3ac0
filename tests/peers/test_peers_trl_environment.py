"""The environment for TRL, in that library's own training loop: rollouts, tool calls, rewards, an update."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from by_heart import learned_by_heart
from torl.base.errors import SandboxError
from torl.components.interop.trl import PythonEnvironment, environment_factory
from torl_sandbox import SandboxPool

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


def test_its_trainer_trains_with_calls_of_the_sandbox(pool: SandboxPool, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = learned_by_heart(dialog(), [PythonEnvironment(pool).python])
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
    assert await environment.python("x = 41") == "[no output]"
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
