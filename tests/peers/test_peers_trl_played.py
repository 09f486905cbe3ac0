"""The environment "trl" against TRL's own trainer: one class, one model; the same tokens, results and rewards."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import asked
from by_heart import learned_by_heart
from chat_models import ChatModel
from scripted_engine import ScriptedEngine
from scripted_environment import in_environment
from torl.base.types import Problem, Prompt
from torl.components.formats.chat import HermesFormat
from torl.components.interop.trl import TrlEnvironment
from torl.rollout.model_directory import schemas
from torl_lab.audit.tokens import token_mismatch

QUESTION = {"role": "user", "content": "Count to seven."}


class Counter:
    """Counts up."""

    def __init__(self) -> None:
        self.total = 0

    def reset(self, **_: Any) -> str:
        self.total = 0
        return " Begin at zero."

    def add(self, number: int) -> str:
        """Add a number.

        Args:
            number: The summand.

        Returns:
            The sum.
        """
        if number < 0:
            raise ValueError("only up")
        self.total += number
        return f"It is {self.total}."

    def get_reward(self) -> float:
        return float(self.total == 7)


def calling(number: int) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "add", "arguments": {"number": number}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "name": "add", "content": content}


ASKED = {**QUESTION, "content": QUESTION["content"] + " Begin at zero."}
SAID = [
    calling(4), result("It is 4."), calling(-1), result("{'error': 'only up'}"), calling(3), result("It is 7."),
    {"role": "assistant", "content": "Done."},
]  # fmt: skip


def test_an_episode_has_the_tokens_the_results_and_the_reward_of_trls_own_rollout(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = learned_by_heart([ASKED, *SAID], [Counter().add])
    seen: list[tuple[list[dict[str, Any]], list[int]]] = []

    def noted(completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        seen.extend(zip(completions, completion_ids, strict=True))
        return [0.0] * len(completions)

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=noted,
        train_dataset=Dataset.from_list([{"prompt": [QUESTION]}] * 2),
        environment_factory=Counter,
        args=GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
            max_completion_length=256, temperature=0.01, use_cpu=True, bf16=False, gradient_checkpointing=False,
            report_to="none", save_strategy="no", logging_steps=1,
        ),
    )  # fmt: skip
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "rewards/Counter/mean" in row]
    messages, token_ids = seen[0]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results == ["It is 4.", "{'error': 'only up'}", "It is 7."]  # the model knows its dialog

    chat = ChatModel(HermesFormat(), tokenizer)
    text = tokenizer.decode(token_ids).removesuffix("<|im_end|>")
    turns = [part.partition("<|im_end|>")[0] + "<|im_end|>" for part in text.split("<|im_start|>assistant\n")]
    environment = TrlEnvironment(f"{__name__}:Counter")
    template = tokenizer.chat_template
    player = in_environment(chat.player(turns), chat, environment)
    tokenizer.chat_template = template
    assert player.environment is not None
    player.environment = replace(player.environment, tools=schemas([environment.tools]))
    assert isinstance(player.engine, ScriptedEngine)
    player.engine.stop_token_ids = chat.end_token_ids
    prompt = Prompt(Problem("p", QUESTION["content"], ""), asked().token_ids)
    played = asyncio.run(player.play(prompt, batch_id=0, sample=0))
    assert played.token_ids_T.tolist() == list(token_ids)
    assert [call.outcome.text for call in played.tool_calls] == results
    assert played.environment_rewards == {"Counter": row["rewards/Counter/mean"]} == {"Counter": 1.0}
    assert "Count to seven. Begin at zero." in tokenizer.decode(played.prompt.token_ids)
    rules = chat.rules(environment={"trl": f"{__name__}:Counter"})
    assert token_mismatch(played, replace(rules, stop_token_ids=chat.end_token_ids)) is None
