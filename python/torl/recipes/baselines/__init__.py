"""Prompt templates of the models that the papers compare with, word for word."""

from torl import Problem, chatml

# Qwen2.5-Math's README: the system messages of its two modes.
_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."
_WITH_PROGRAMS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}."
)
# PRIME's `training/scripts/data_prepare.py`. The file of its evaluation has "\\n" for each newline.
_ACTIONS = (
    "\nWhen tackling complex reasoning tasks, you have access to the following actions. Use them as needed to progress "
    "through your thought process.\n\n[ASSESS]\n\n[ADVANCE]\n\n[VERIFY]\n\n[SIMPLIFY]\n\n[SYNTHESIZE]\n\n[PIVOT]\n\n"
    "[OUTPUT]\n\nYou should strictly follow the format below:\n\n[ACTION NAME]\n\n# Your action step 1\n\n"
    "# Your action step 2\n\n# Your action step 3\n\n...\n\nNext action: [NEXT ACTION NAME]\n\n"
)


def qwen25_math(problem: Problem) -> str:
    """Return the prompt of Qwen2.5-Math-Instruct without a tool; DeepMath-Zero-Math-7B has the same."""
    return chatml(problem, _STEP_BY_STEP)


def qwen25_math_tir(problem: Problem) -> str:
    """Return the prompt of Qwen2.5-Math-Instruct with a Python interpreter, whose calls have the format "torl"."""
    return chatml(problem, _WITH_PROGRAMS)


def eurus(problem: Problem) -> str:
    """Return the prompt of Eurus-2 (PRIME): its actions as the system message, then the sentence of its README."""
    return chatml(problem, _ACTIONS, "\n\nPresent the answer in LaTex format: \\boxed{Your answer}")
