"""Prompt templates by name, word for word."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from torl.text.chat_templates import (
    Conversation,
    Messages,
    chat,
    chatml,
    eurus,
    mathcoder,
    qwen25_math,
    qwen25_math_tir,
    tora,
)
from torl.types import Markup, Problem

TemplateOutput = str | Markup | Messages | Conversation
"""What a template gives: a text, or the messages of a conversation. Control tokens that the problem spells are text in
it; in a `Markup` they are these tokens."""

PromptTemplate = Callable[[Problem], TemplateOutput]
"""From a problem to the text of its prompt, or to the messages that the model's own chat template makes a text of. A
whole one:

    def question_first(problem: Problem, hint: str = "Think.") -> str:
        return f"{problem.question}\\n{hint}\\n"

    [data.template]
    name = "my_package.templates:question_first"
    hint = "Use Python."

Its parameters after the first are its options.
"""

# ToRL, section 2: the same text for every model, so that a base model needs no chat format. It says "above"
# though the problem stands below.
TORL_TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it.\n"
    "User: Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.\n"
    "{problem}\n"
    "Assistant:\n"
)

# ORZ's prompt, and ZeroTIR's ("ZERO_TIR" of its code), which is nearly the same with one sentence more. The model
# continues behind <think>, in the middle of a line.
_THINK_AND_ANSWER = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>.{python} "
    "User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
    "And your final answer will be extracted automatically by the \\boxed{} tag.\n"
    "This is the problem:{newline}{problem}\n"
    "Assistant: <think>"
)
ZEROTIR_TEMPLATE = _THINK_AND_ANSWER.replace(
    "{python}", " In your reasoning-process, You can use python-code to solve your problem."
).replace("{newline}", "")
ORZ_TEMPLATE = _THINK_AND_ANSWER.replace("{python}", "").replace("{newline}", "\n")
# Search-R1, table 1, with the space that its code has (`scripts/data_process/nq_search.py`).
SEARCH_R1_TEMPLATE = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new "
    "information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query "
    "</search> and it will return the top searched results between <information> and </information>. You can search as "
    "many times as your want. If you find no further external knowledge needed, you can directly provide the answer "
    "inside <answer> and </answer>, without detailed illustrations. For example, <answer> Beijing </answer>. "
    "Question: {problem}\n"
)
# ReTool, figure 7, as its data has it (JoeYing/ReTool-SFT).
_RETOOL_ENDING = "<answer>\n\\boxed{'The final answer goes here.'}\n</answer>"
RETOOL_PROMPT = (
    "Solve the following problem step by step. You now have the ability to selectively write executable Python code to "
    "enhance your reasoning process. The Python code will be executed by an external sandbox, and the output (wrapped "
    "in `<interpreter>output_str</interpreter>`) can be returned to aid your reasoning and help you arrive at the "
    "final answer. The Python code should be complete scripts, including necessary imports. \nEach code snippet is "
    "wrapped with `<code>\n```python\ncode snippet\n```\n</code>`.\nThe last part of your response should be in the "
    f"following format:\n{_RETOOL_ENDING}\n\n*user question:*\n{{problem}}\n\nRemember to place the final answer in "
    f"the last part using the format: \n{_RETOOL_ENDING}"
)
# In the words of ARTIST's section 3.1; the prompt of its appendix A is another.
ARTIST_PROMPT = (
    "Solve the problem below. Reason between <think> and </think>. Any code intended for execution is placed between "
    "<python> and </python>; it is executed by a Python interpreter, and the output is returned between <output> and "
    "</output>. Give the final answer between <answer> and </answer>.\n\n{problem}"
)


def torl(problem: Problem) -> str:
    """ToRL's template."""
    return _filled(TORL_TEMPLATE, problem)


def zerotir(problem: Problem) -> str:
    """ZeroTIR's: thoughts in <think>, Python allowed, the answer in <answer>."""
    return _filled(ZEROTIR_TEMPLATE, problem)


def orz(problem: Problem) -> str:
    """ORZ's: ZeroTIR's without the sentence on Python."""
    return _filled(ORZ_TEMPLATE, problem)


def search_r1(problem: Problem) -> str:
    """Search-R1's: thoughts in <think>, queries in <search>, the answer in <answer>."""
    return _filled(SEARCH_R1_TEMPLATE, problem)


def retool(problem: Problem, system: str = "") -> str:
    """ReTool's, in ChatML: code in <code>, its output in <interpreter>, the boxed answer in <answer>.

    Args:
        system: the system message; none when empty.
    """
    return chatml(replace(problem, question=_filled(RETOOL_PROMPT, problem)), system)


def artist(problem: Problem, system: str = "") -> str:
    """For ARTIST's format, in ChatML: thoughts in <think>, code in <python>, the answer in <answer>.

    Args:
        system: the system message; none when empty.
    """
    return chatml(replace(problem, question=_filled(ARTIST_PROMPT, problem)), system)


def none(problem: Problem) -> Markup:
    """The question as it stands, with the control tokens that it spells."""
    return Markup(problem.question)


TEMPLATES: Mapping[str, PromptTemplate] = MappingProxyType(
    {
        "torl": torl,
        "zerotir": zerotir,
        "orz": orz,
        "search_r1": search_r1,
        "none": none,
        "chat": chat,
        "chatml": chatml,
        "qwen25_math": qwen25_math,
        "qwen25_math_tir": qwen25_math_tir,
        "eurus": eurus,
        "tora": tora,
        "mathcoder": mathcoder,
        "retool": retool,
        "artist": artist,
    }
)
"""By the names that a configuration calls them."""


def _filled(template: str, problem: Problem) -> str:
    """Braces in the question are left alone."""
    head, _, tail = template.partition("{problem}")
    return head + problem.question + tail
