"""Open-Reasoner-Zero: its prompt template, and the response format that it rewards."""

from torl import Problem, find_answer

# `zero_setting_base.py`. The model continues after <think>, in the middle of a line.
TEMPLATE = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
    "User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
    "And your final answer will be extracted automatically by the \\boxed{} tag.\n"
    "This is the problem:\n{problem}\n"
    "Assistant: <think>"
)


def template(problem: Problem) -> str:
    """Return ORZ's prompt: thoughts in <think>, the answer in <answer>."""
    return TEMPLATE.replace("{problem}", problem.question, 1)


def has_answer_format(text: str) -> bool:
    """Whether a complete box is between the first ``<answer>`` and the last ``</answer>`` (`orz_7b_ppo.py`)."""
    answer, closed, _ = text.partition("<answer>")[2].rpartition("</answer>")
    return bool(closed) and find_answer(answer) is not None
