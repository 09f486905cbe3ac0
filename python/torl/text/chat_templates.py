"""Prompt templates of chat models, word for word: the papers' baselines.

Their markup is read by the model's own tokenizer, which must know it: in another's vocabulary it is plain text. A turn
ends with the model's own end-of-sequence tokens.
"""

from torl.types import Problem

# Qwen2.5-Math's README: the system messages of its two modes.
_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."
_WITH_PROGRAMS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}."
)


def chatml(problem: Problem, system: str = "", ending: str = "") -> str:
    """Qwen's markup (ChatML) with one question.

    Args:
        system: the system message; none when empty.
        ending: what stands behind the question.
    """
    before = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{before}<|im_start|>user\n{problem.question}{ending}<|im_end|>\n<|im_start|>assistant\n"


def qwen25_math(problem: Problem) -> str:
    """Qwen2.5-Math-Instruct, thinking in words."""
    return chatml(problem, _STEP_BY_STEP)


def qwen25_math_tir(problem: Problem) -> str:
    """Qwen2.5-Math-Instruct with a Python interpreter, whose calls have the format "torl"."""
    return chatml(problem, _WITH_PROGRAMS)


def eurus(problem: Problem) -> str:
    """Eurus-2 (PRIME's README): the sentence behind the question, no system message."""
    return chatml(problem, ending="\n\nPresent the answer in LaTex format: \\boxed{Your answer}")


def tora(problem: Problem) -> str:
    """ToRA, whose calls have the format "torl"."""
    return f"<|user|>\n{problem.question}\n<|assistant|>\n"
