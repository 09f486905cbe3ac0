"""Prompt templates of chat models: the model's own, and word for word those of the papers' baselines.

The markup of these is read by the model's own tokenizer, which must know it: in another's vocabulary it is plain text.
A turn ends with the model's own end-of-sequence tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torl.types import Problem

Messages: TypeAlias = Sequence[Mapping[str, str]]
"""A conversation: each message has a "role" and a "content"."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and what the model's chat template is told beside them and the tools, by the names of its variables."""

    messages: Messages
    variables: Mapping[str, Any] = field(default_factory=dict)


# Qwen2.5-Math's README: the system messages of its two modes.
_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."
_WITH_PROGRAMS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}."
)
# PRIME's `training/scripts/data_prepare.py`. Its evaluation has the same in a file where newlines stand as "\\n".
_ACTIONS = (
    "\nWhen tackling complex reasoning tasks, you have access to the following actions. Use them as needed to progress "
    "through your thought process.\n\n[ASSESS]\n\n[ADVANCE]\n\n[VERIFY]\n\n[SIMPLIFY]\n\n[SYNTHESIZE]\n\n[PIVOT]\n\n"
    "[OUTPUT]\n\nYou should strictly follow the format below:\n\n[ACTION NAME]\n\n# Your action step 1\n\n"
    "# Your action step 2\n\n# Your action step 3\n\n...\n\nNext action: [NEXT ACTION NAME]\n\n"
)


def chat(
    problem: Problem, system: str = "", suffix: str = "", variables: Mapping[str, Any] | None = None
) -> Conversation:
    """The model's own chat template, with the tools of the run, where the model answers next.

    Args:
        system: the system message; the template's own when empty.
        suffix: what stands behind the question.
        variables: of the template: { enable_thinking = false } for Qwen3, { reasoning_effort = "low" } for gpt-oss.
    """
    before = [{"role": "system", "content": system}] if system else []
    return Conversation([*before, {"role": "user", "content": problem.question + suffix}], variables or {})


def chatml(problem: Problem, system: str = "", suffix: str = "") -> str:
    """Qwen's markup (ChatML) with one question.

    Args:
        system: the system message; none when empty.
        suffix: what stands behind the question.
    """
    before = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{before}<|im_start|>user\n{problem.question}{suffix}<|im_end|>\n<|im_start|>assistant\n"


def qwen25_math(problem: Problem) -> str:
    """Qwen2.5-Math-Instruct, thinking in words; DeepMath-Zero-Math-7B too (DeepMath's `chat_template.py`)."""
    return chatml(problem, _STEP_BY_STEP)


def qwen25_math_tir(problem: Problem) -> str:
    """Qwen2.5-Math-Instruct with a Python interpreter, whose calls have the format "torl"."""
    return chatml(problem, _WITH_PROGRAMS)


def eurus(problem: Problem) -> str:
    """Eurus-2 (PRIME): its actions as the system message, and the sentence of its README behind the question."""
    return chatml(problem, _ACTIONS, "\n\nPresent the answer in LaTex format: \\boxed{Your answer}")


def tora(problem: Problem) -> str:
    """ToRA (`construct_prompt` in its `utils.py`), whose calls have the format "tora"."""
    return f"<|user|>\n{problem.question}\n<|assistant|>\n"


def mathcoder(problem: Problem, system: str = "") -> str:
    """MathCoder (`code_generation` in its `src/inference.py`), whose calls have the format "mathcoder".

    Args:
        system: the system message, which its code leaves empty by default.
    """
    before = f"<|system|><|text|>{system}<|endofblock|><|endofmessage|>"
    return f"{before}<|user|><|text|>{problem.question}\n<|endofblock|><|endofmessage|><|assistant|>"
