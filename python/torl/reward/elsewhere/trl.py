"""A reward function as TRL's `GRPOTrainer` takes it: `reward_funcs=torl.reward.elsewhere.trl.reward_func`."""

from collections.abc import Mapping, Sequence
from typing import Any

from torl.reward.elsewhere.shared import score


def reward_func(
    completions: Sequence[str | Sequence[Mapping[str, str]]], answer: Sequence[str], **_: Any
) -> list[float]:
    """1 for each completion whose last box equals its `answer`, a column of the data set; 0 for the others.

    Args:
        completions: texts, or conversations, of which the assistant's messages count.
        answer: the references, one for each completion.

    Raises:
        RewardError: the grader is broken.
    """
    return [score(_text(completion), reference) for completion, reference in zip(completions, answer, strict=True)]


def _text(completion: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(completion, str):
        return completion
    return "\n".join(message["content"] for message in completion if message.get("role") == "assistant")
